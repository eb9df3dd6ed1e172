"""Logins: where they are saved, which one is in use, how one is made and revoked."""
