"""The ELF audit: would these files load where they are sent, and what must be sent with them?"""
