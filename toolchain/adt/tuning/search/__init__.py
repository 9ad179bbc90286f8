"""What to measure next: the search of each kernel, and which kernel gets the next candidates."""
