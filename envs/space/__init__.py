"""What worlds are made of, shared by the families of environments."""
