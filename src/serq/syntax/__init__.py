"""Text to trees: tokens, the grammar part by part, the one layout."""
