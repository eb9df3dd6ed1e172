"""What runs inside a task's container: the exchange files, the agent and the grader around user code.

Importable with the base dependencies only: a container has neither Harbor nor a web server.
"""
