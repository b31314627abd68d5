"""Models in the forms of other programs: reading and writing each."""
