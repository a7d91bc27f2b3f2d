"""The test's side of the demo fleet: starts it, asks it, wedges it. Standard library only."""
