"""Where a function lives: so far, a sandboxed process."""
