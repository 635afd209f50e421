"""What the user asks for: YAML into checked, typed models, each error with its place in the file."""
