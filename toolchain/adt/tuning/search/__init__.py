"""Choice of the next candidates: the search of each kernel, and the share of each kernel."""
