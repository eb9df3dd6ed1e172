"""An agent that multiplies with a tool."""
