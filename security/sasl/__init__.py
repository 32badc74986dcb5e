"""The servers' SASL dialogues: one file for each mechanism, behind ``dialogue.Dialogue``."""
