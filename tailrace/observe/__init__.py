"""What runs, looked at: its counters, frames and measurements. It only reads."""
