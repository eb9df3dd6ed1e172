"""An MCP server on stdio with one tool; both generations of the `mcp` package can run it."""

import importlib


def main() -> None:
    try:
        server_class = importlib.import_module("mcp.server.mcpserver").MCPServer
    except ModuleNotFoundError:
        server_class = importlib.import_module("mcp.server.fastmcp").FastMCP
    server = server_class("arithmetic")

    @server.tool()
    def multiply(a: int, b: int) -> int:
        """Multiply two integers."""
        return a * b

    server.run(transport="stdio")


if __name__ == "__main__":
    main()
