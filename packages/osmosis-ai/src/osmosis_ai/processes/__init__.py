"""Starting processes that end with whoever started them."""
