"""An inference server without a model: it speaks the real wire format and says which model was asked for.

`POST /admin/fall` ends the process, to see it restarted.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SPEC = json.loads(sys.stdin.buffer.readline())
BASES = dict(SPEC["base_models"])
ADAPTERS = {item["name"]: item for item in SPEC["adapters"]}


def lifeline() -> None:
    sys.stdin.buffer.read()
    os._exit(70)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: Any, kind: str = "application/json") -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def body(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {SPEC['api_key']}":
            return True
        self.body()
        self.answer(401, {"error": {"message": "wrong key"}})
        return False

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, {"status": "ok"})
        elif self.allowed():
            self.answer(200, {"bases": BASES, "adapters": ADAPTERS, "pid": os.getpid()})

    def do_PUT(self) -> None:
        if not self.allowed():
            return
        body = self.body()
        if self.path == "/admin/base-models":
            BASES[body["name"]] = body["path"]
        else:
            name = self.path.rpartition("/")[2]
            if not os.path.isfile(os.path.join(body["path"], "adapter_config.json")):
                self.answer(400, {"error": {"message": "no adapter there"}})
                return
            ADAPTERS[name] = {"name": name, **body}
        self.answer(200, {})

    def do_DELETE(self) -> None:
        if self.allowed():
            found = ADAPTERS.pop(self.path.rpartition("/")[2], None)
            self.answer(200 if found else 404, {})

    def do_POST(self) -> None:
        if not self.allowed():
            return
        body = self.body()
        if self.path == "/admin/fall":
            os._exit(9)
        base, _, adapter = body["model"].rpartition(":")
        if body["model"] not in BASES and not (
            base in BASES and ADAPTERS.get(adapter, {}).get("base") == base
        ):
            self.answer(
                404, {"error": {"message": f"no model {body['model']}", "type": "invalid_request_error"}}
            )
            return
        said = f"{body['model']} heard {body['messages'][-1]['content']}"
        if body.get("stream"):
            chunks = [
                {"model": body["model"], "choices": [{"index": 0, "delta": {"content": word}}]}
                for word in said.split()
            ]
            lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
            self.answer(200, "".join(lines).encode(), "text/event-stream")
            return
        message = {"role": "assistant", "content": said}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self.answer(
            200, {"id": "c", "object": "chat.completion", "model": body["model"], "choices": [choice]}
        )

    def log_message(self, *args: Any) -> None:
        pass


threading.Thread(target=lifeline, daemon=True).start()
ThreadingHTTPServer((SPEC["host"], SPEC["port"]), Handler).serve_forever()
