"""What a compiled program must satisfy beyond its grammar."""
