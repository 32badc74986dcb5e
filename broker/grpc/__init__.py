"""The broker's services on the control plane: Data for clients, Admin for everybody."""
