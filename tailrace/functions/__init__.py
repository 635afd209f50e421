"""Where functions live: in processes, containers, virtual machines, or with somebody else; their images and files."""
