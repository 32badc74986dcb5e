"""The demo: orders in, leaders killed, orders out, and the proof that nothing was lost."""
