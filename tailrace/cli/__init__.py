"""The command `tailrace`: thin. Options in, one call, words or JSON out."""
