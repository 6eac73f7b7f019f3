"""The commands of the `castq` program: each reads its arguments, calls one function that returns data, and shows it."""
