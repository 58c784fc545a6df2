"""What an operator does to a connector, a module a deed; called alike by the command line and REST."""
