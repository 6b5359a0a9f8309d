"""The parts of the page, one a file: each a function of what is shown, which gives a section or has nothing to say."""
