"""Environment secrets, encrypted at rest."""
