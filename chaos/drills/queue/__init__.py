"""A share group whose workers are killed."""
