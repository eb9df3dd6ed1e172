"""Datasets: checked, sent, listed, shown, fetched."""

import json
from types import SimpleNamespace

import pytest

from osmosis_ai.cli.datasets import upload as upload_module
from osmosis_ai.platform.api import download as download_module
from osmosis_ai.platform.api import transfer

ROWS = [{"system_prompt": "s", "user_prompt": f"q{i}", "ground_truth": str(i)} for i in range(6)]
DATASET = {
    "id": "ds-000001",
    "file_name": "arith",
    "file_size": 300,
    "status": "uploaded",
    "file_format": "parquet",
    "original_file_format": "jsonl",
    "row_count": 6,
    "original_file_size": 4300,
    "creator_name": "Ada",
    "created_at": "2026-07-01T10:00:00Z",
    "updated_at": "2026-07-01T10:00:00Z",
    "df_stats": {},
    "organization_id": "o",
}
KEYS = set(DATASET) - {"df_stats", "organization_id"}


@pytest.fixture
def file(workspace):
    path = workspace / "data" / "arith.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def no_waiting(monkeypatch):
    monkeypatch.setattr(upload_module.time, "sleep", lambda _: None)
    monkeypatch.setattr(transfer, "_UPLOAD_WAITS_S", (0.0,) * 4)


def simple(platform, **more):
    return {
        **DATASET,
        "status": "uploading",
        "upload": {
            "method": "simple",
            "s3_key": "k",
            "presigned_url": f"{platform.url}/put?sig=1",
            "upload_headers": {"X-A": "1"},
        }
        | more,
    }


def test_list(osmosis, workspace, platform, context):
    platform.page(
        "/datasets",
        "datasets",
        [DATASET, {"id": "d2", "file_name": "a\tb\nc", "status": "weird", "file_size": 256}],
    )
    document = osmosis("dataset", "list", "--json").json
    assert set(document["items"][0]) == KEYS
    assert {key: document[key] for key in context} == context
    assert (document["total_count"], document["has_more"], document["next_offset"]) == (2, False, None)
    ran = osmosis("dataset", "list", "--plain")
    assert ran.err == "Fetching datasets...\n"
    assert ran.out.splitlines() == [
        "arith\t[uploaded]\t300 B\t2026-07-01 10:00 AM UTC\tAda",
        "a b c\t[weird]\t256 B\t–\t–",
    ]
    rich = osmosis("dataset", "list").out
    assert "Uploaded By" in rich
    assert "[uploaded]" in rich
    assert platform.requests[0].query == {"limit": "50", "offset": "0"}


def test_an_empty_list_has_a_header_for_people_only(osmosis, workspace, platform):
    platform.page("/datasets", "datasets", [])
    assert osmosis("dataset", "list", "--plain").out == ""
    assert "Uploaded By" in osmosis("dataset", "list").out


def test_all_walks_the_pages(osmosis, workspace, platform):
    pages = {"0": ([{"id": "1"}], 50), "50": ([{"id": "2"}], 100), "100": ([], 150)}

    def page(request):
        items, following = pages[request.query["offset"]]
        body = {"datasets": items, "total_count": 2, "has_more": True, "next_offset": following}
        return SimpleNamespace(status=200, body=body, headers={}, content=None)

    platform.on("GET", "/datasets", page)
    document = osmosis("dataset", "list", "--all", "--json").json
    assert [item["id"] for item in document["items"]] == ["1", "2"]
    assert (document["has_more"], document["next_offset"]) == (False, None)
    assert [request.query["offset"] for request in platform.requests] == ["0", "50", "100"]


def test_all_and_limit_exclude_each_other(osmosis, workspace, platform):
    platform.page("/datasets", "datasets", [])
    ran = osmosis("dataset", "list", "--all", "--limit", "3", "--json")
    assert (ran.code, ran.error["message"]) == (1, "--all and --limit are mutually exclusive.")
    assert osmosis("dataset", "list", "--all", "--limit", "50", "--json").code == 0


def test_a_truncated_list_says_so_to_people(osmosis, workspace, platform):
    platform.page("/datasets", "datasets", [DATASET], total_count=7, has_more=True, next_offset=1)
    assert "Showing 1 of 7." in osmosis("dataset", "list").out
    assert "Showing" not in osmosis("dataset", "list", "--plain").out


def test_info_and_names_are_encoded_as_one_segment(osmosis, workspace, platform, context):
    platform.on(
        "GET", "/datasets/a%2Fb%20c", {**DATASET, "status": "error", "platform_url": "http://h/w/datasets/1"}
    )
    data = osmosis("dataset", "info", "a/b c", "--json").json["data"]
    assert set(data) == KEYS | {"platform_url"} | set(context)
    lines = osmosis("dataset", "info", "a/b c", "--plain").out.splitlines()
    assert lines == [
        "File: arith",
        "Status: Error",
        "File Format: PARQUET (uploaded as JSONL)",
        "Total Rows: 6",
        "Size: 300 B (uncompressed: 4.2 KB)",
        "Uploaded: 2026-07-01 10:00:00 AM UTC",
        "Uploaded By: Ada",
        "View: http://h/w/datasets/1",
        "See logs with: osmosis dataset logs 'a/b c'",
    ]


@pytest.mark.parametrize(
    ("preview", "status", "rows", "returned", "message"),
    [
        ([{"a": 1}, {"a": 2}, {"a": 3}], "uploaded", [{"a": 1}, {"a": 2}], 2, None),
        ({"x": 1}, "uploaded", {"x": 1}, 1, None),
        (None, "processing", None, 0, "still processing"),
        (None, "uploaded", None, 0, "No preview"),
    ],
)
def test_preview(osmosis, workspace, platform, preview, status, rows, returned, message):
    platform.on("GET", "/datasets/arith", {**DATASET, "status": status, "data_preview": preview})
    data = osmosis("dataset", "preview", "arith", "--rows", "2", "--json").json["data"]
    assert (data["rows"], data["requested_rows"], data["returned_rows"]) == (rows, 2, returned)
    assert data["available"] is (rows is not None)
    assert (message or "") in data.get("message", "")
    assert ("message" in data) is (message is not None)
    assert set(data["dataset"]) == KEYS
    plain = osmosis("dataset", "preview", "arith", "--rows", "2", "--plain").out.splitlines()
    assert plain[:2] == ["Dataset: arith", f"Rows: {returned} of 6"]
    shown = [] if rows is None else rows if isinstance(rows, list) else [rows]
    assert [line for line in plain if line.startswith("Row ")] == [
        f"Row {number}: {json.dumps(row)}" for number, row in enumerate(shown, 1)
    ]


@pytest.mark.parametrize(
    ("name", "segment", "quoted"),
    [
        ("arith", "arith", "arith"),
        ("üñ 名", "%C3%BC%C3%B1%20%E5%90%8D", "'üñ 名'"),
        ("<script>", "%3Cscript%3E", "'<script>'"),
    ],
)
def test_commands_that_are_hinted_at_can_be_pasted(osmosis, workspace, platform, name, segment, quoted):
    platform.on("GET", f"/datasets/{segment}", DATASET)
    assert f"Rows: osmosis dataset preview {quoted}\n" in osmosis("dataset", "info", name).out


def test_a_preview_shows_metadata_as_an_object_to_people(osmosis, workspace, platform):
    rows = [{"user_prompt": "q", "metadata": '{"n": 1}'}, {"metadata": "{"}]
    platform.on("GET", "/datasets/arith", {**DATASET, "data_preview": rows})
    for flags in ([], ["--plain"]):
        out = osmosis("dataset", "preview", "arith", *flags).out
        assert '{"user_prompt": "q", "metadata": {"n": 1}}' in out
        assert '{"metadata": "{"}' in out
    assert osmosis("dataset", "preview", "arith", "--json").json["data"]["rows"] == rows


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("none.jsonl", None, "File not found"),
        (".", None, "File not found"),
        ("..jsonl", "a", "cannot be named '.'"),
        ("x.txt", "a", "Unsupported file type '.txt'. Supported: csv, jsonl, parquet"),
        ("x.jsonl", "", "File is empty."),
        ("x.jsonl", '{"a": 1}\n' * 4, "Missing required columns"),
        ("x.jsonl", '{"system_prompt": "s", "user_prompt": "u"}\n' * 3, "Dataset too small: 3 rows."),
        ("x.CSV", "system_prompt,user_prompt\n" + "a,b\n" * 2 + "a,b,c\n" + "a,b\n", "Validation failed:"),
    ],
)
def test_validate_refuses(osmosis, tmp_path, name, content, fragment):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    ran = osmosis("dataset", "validate", str(path), "--json")
    assert (ran.code, ran.error["code"]) == (1, "VALIDATION")
    assert fragment in ran.error["message"]


def test_validate_accepts(osmosis, file):
    data = osmosis("dataset", "validate", "data/arith.jsonl", "--json").json["data"]
    assert data == {
        "valid": True,
        "file": str(file),
        "file_name": "arith.jsonl",
        "extension": "jsonl",
        "file_size": file.stat().st_size,
        "errors": [],
        "warnings": [],
    }


def test_a_link_is_judged_by_its_own_name(osmosis, file):
    blob = file.rename(file.with_name("blob123"))
    file.symlink_to(blob)
    data = osmosis("dataset", "validate", "data/arith.jsonl", "--json").json["data"]
    assert (data["file_name"], data["extension"]) == ("arith.jsonl", "jsonl")
    assert data["file_size"] == blob.stat().st_size


def test_upload_needs_a_yes(osmosis, file, platform):
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--overwrite", "--json")
    assert ran.code == 1
    assert ran.error["code"] == "INTERACTIVE_REQUIRED"
    assert ran.error["message"] == "Use --yes to confirm in non-interactive mode."
    details = ran.error["details"]
    assert details["summary"] == {"File": "arith.jsonl", "Size": f"{file.stat().st_size} B"}
    assert "overwrite" in details["prompt"]
    assert "--overwrite" in details["warnings"][0]
    assert "notes" not in details
    assert platform.requests == []
    plain = osmosis("dataset", "upload", "data/arith.jsonl", "--plain").err
    assert plain.startswith("Confirmation required: Upload this dataset?\n  File: arith.jsonl\n")


def test_upload_in_one_piece(osmosis, file, platform, context):
    platform.on(
        "POST",
        "/datasets",
        lambda request: SimpleNamespace(status=201, body=simple(platform), headers={}, content=None),
    )
    platform.on("PUT", "/put")
    platform.on(
        "POST", "/datasets/ds-000001/complete", {**DATASET, "status": "pending", "platform_url": "http://h/x"}
    )
    document = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json").json
    assert document["operation"] == "dataset.upload"
    assert document["resource"]["status"] == "pending"
    assert set(document["resource"]) == KEYS | {"platform_url"} | set(context)
    assert document["next_steps_structured"] == [{"label": "View dataset", "url": "http://h/x"}]
    created, put, completed = platform.requests
    assert created.json == {"file_name": "arith", "file_size": file.stat().st_size, "extension": "jsonl"}
    assert put.body == file.read_bytes()
    assert put.headers["x-a"] == "1"
    assert put.headers["content-length"] == str(file.stat().st_size)
    assert "transfer-encoding" not in put.headers
    assert "authorization" not in put.headers
    assert completed.json == {"file_extension": "jsonl"}


def test_upload_shows_progress_in_plain_mode(osmosis, file, platform):
    platform.on(
        "POST",
        "/datasets",
        lambda _: SimpleNamespace(status=201, body=simple(platform), headers={}, content=None),
    )
    platform.on("PUT", "/put")
    platform.on("POST", "/datasets/ds-000001/complete", DATASET)
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--plain")
    assert ran.out.splitlines()[0] == "Dataset uploaded: arith"
    assert "Uploading: 100%" in ran.err


def multipart(platform, size, part_size, total, urls=None):
    numbers = range(1, total + 1)
    urls = urls or [{"part_number": n, "presigned_url": f"{platform.url}/part/{n}"} for n in numbers]
    return {
        **DATASET,
        "upload": {
            "method": "multipart",
            "s3_key": "k",
            "part_size": part_size,
            "total_parts": total,
            "presigned_urls": urls,
        },
    }


def test_upload_in_parts(osmosis, file, platform):
    size = file.stat().st_size
    platform.on("POST", "/datasets", multipart(platform, size, 200, -(-size // 200)))
    for number in range(1, -(-size // 200) + 1):
        platform.on("PUT", f"/part/{number}", headers={"ETag": f'"tag{number}"'})
    platform.on("POST", "/datasets/ds-000001/complete", DATASET)
    assert osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json").code == 0
    parts = [request for request in platform.requests if request.method == "PUT"]
    assert [part.path for part in parts] == [f"/part/{n}" for n in range(1, len(parts) + 1)]
    assert b"".join(part.body for part in parts) == file.read_bytes()
    assert platform.requests[-1].json["parts"] == [
        {"PartNumber": n, "ETag": f"tag{n}"} for n in range(1, len(parts) + 1)
    ]


@pytest.mark.parametrize(
    "upload",
    [
        {
            "method": "multipart",
            "part_size": 100,
            "total_parts": 1,
            "presigned_urls": [{"part_number": 1, "presigned_url": "x"}],
        },
        {"method": "multipart", "part_size": 10_000, "total_parts": 1, "presigned_urls": []},
        {"method": "multipart"},
        {"method": "carrier-pigeon"},
        {"method": "simple", "presigned_url": "http://example.com/put"},
        {},
    ],
)
def test_a_bad_upload_plan_sends_nothing_and_is_aborted(osmosis, file, platform, upload):
    platform.on("POST", "/datasets", {**DATASET, "upload": upload})
    platform.on("POST", "/datasets/ds-000001/abort", {})
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json")
    assert (ran.code, ran.error["code"]) == (1, "PLATFORM_ERROR")
    assert platform.calls() == ["POST /datasets", "POST /datasets/ds-000001/abort"]


def test_upload_is_tried_again_when_the_store_is_busy(osmosis, file, platform, no_waiting):
    platform.on("POST", "/datasets", simple(platform))
    platform.on("PUT", "/put", status=503)
    platform.on("PUT", "/put", status=200)
    platform.on("POST", "/datasets/ds-000001/complete", {"error": "later"}, status=500)
    platform.on("POST", "/datasets/ds-000001/complete", DATASET)
    assert osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json").code == 0
    puts = [request for request in platform.requests if request.method == "PUT"]
    assert [put.body for put in puts] == [file.read_bytes()] * 2
    assert platform.calls().count("POST /datasets/ds-000001/complete") == 2


def test_a_refused_upload_is_final_and_aborted(osmosis, file, platform, no_waiting):
    platform.on("POST", "/datasets", simple(platform))
    platform.on("PUT", "/put", status=403)
    platform.on("POST", "/datasets/ds-000001/abort", {"error": "x"}, status=500)
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json")
    assert ran.code == 1
    assert json.loads(ran.err.splitlines()[0])["warning"]["code"] == "ABORT_FAILED"
    assert "sig=1" not in ran.err
    assert platform.calls().count("PUT /put") == 1


@pytest.mark.parametrize(
    ("status", "tries", "code"),
    [
        (500, 5, "PLATFORM_ERROR"),
        (429, 5, "PLATFORM_ERROR"),
        (400, 1, "PLATFORM_ERROR"),
        (401, 1, "AUTH_REQUIRED"),
    ],
)
def test_completing_gives_up_without_aborting(osmosis, file, platform, no_waiting, status, tries, code):
    platform.on("POST", "/datasets", simple(platform))
    platform.on("PUT", "/put")
    platform.on("POST", "/datasets/ds-000001/complete", {"error": "later"}, status=status)
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json")
    assert (ran.error["code"], ran.error["details"]["dataset_id"]) == (code, "ds-000001")
    assert platform.calls().count("POST /datasets/ds-000001/complete") == tries
    assert "POST /datasets/ds-000001/abort" not in platform.calls()


def test_a_taken_name_needs_overwrite(osmosis, file, platform):
    taken = {"error": "exists", "existing_dataset_id": "ds-old"}
    platform.on("POST", "/datasets", taken, status=409)
    ran = osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--json")
    assert ran.error["code"] == "CONFLICT"
    assert "--overwrite" in ran.error["message"]
    assert str(file.parent) not in ran.err
    assert ran.error["details"] == {"existing_dataset_id": "ds-old"}
    platform.reset()
    platform.on("POST", "/datasets", taken, status=409)
    platform.on("POST", "/datasets", simple(platform))
    platform.on("PUT", "/put")
    platform.on("POST", "/datasets/ds-000001/complete", DATASET)
    assert osmosis("dataset", "upload", "data/arith.jsonl", "--yes", "--overwrite", "--json").code == 0
    assert platform.requests[1].json["overwrite_dataset_id"] == "ds-old"


@pytest.fixture(autouse=True)
def _no_pause_before_the_next_try(monkeypatch):
    monkeypatch.setattr(download_module, "_FIRST_WAIT_S", 0.0)


def stored(platform, content=b"x" * 300, status="uploaded", url="/blob/arith.parquet?sig=1"):
    platform.on("GET", "/datasets/arith", {**DATASET, "status": status})
    platform.on(
        "GET", "/datasets/ds-000001/download", {"presigned_url": platform.url + url, "file_name": None}
    )
    platform.on("GET", "/blob/arith.parquet", content=content)


def test_download(osmosis, workspace, platform):
    stored(platform)
    document = osmosis("dataset", "download", "arith", "--json").json
    target = workspace / "arith.parquet"
    assert document["operation"] == "dataset.download"
    assert document["resource"]["output_path"] == str(target)
    assert target.read_bytes() == b"x" * 300
    assert "authorization" not in platform.requests[-1].headers
    ran = osmosis("dataset", "download", "arith", "--json")
    assert "File already exists" in ran.error["message"]
    assert "--overwrite" in ran.error["message"]
    assert osmosis("dataset", "download", "arith", "--overwrite", "--json").code == 0


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ('attachment; filename="sums.csv"', "sums.csv"),
        ("attachment; filename*=UTF-8''s%C3%BCms.jsonl", "süms.jsonl"),
        ('attachment; filename="sums.txt"', "sums.txt"),
        ('attachment; filename="../../x"', "x.parquet"),
        ('attachment; filename=".."', "dataset.parquet"),
        ("inline", "arith.parquet"),
    ],
)
def test_the_file_has_the_name_that_its_address_announces(osmosis, workspace, platform, header, name):
    stored(platform)
    platform.routes.pop(("GET", "/blob/arith.parquet"))
    platform.on("GET", "/blob/arith.parquet", content=b"x" * 300, headers={"Content-Disposition": header})
    document = osmosis("dataset", "download", "arith", "-o", "data", "--json").json
    assert document["resource"]["output_path"] == str(workspace / "data" / name)


@pytest.mark.parametrize(
    ("output", "expected"),
    [("data", "data/arith.parquet"), ("data/", "data/arith.parquet"), ("data/y.bin", "data/y.bin")],
)
def test_download_to_a_place(osmosis, workspace, platform, output, expected):
    stored(platform)
    assert osmosis("dataset", "download", "arith", "-o", output, "--json").code == 0
    assert (workspace / expected).is_file()


@pytest.mark.parametrize("output", ["none/", "none/x.parquet", "none/deep/x", "AGENTS.md/x"])
def test_download_to_a_missing_folder(osmosis, workspace, platform, output):
    stored(platform)
    error = osmosis("dataset", "download", "arith", "-o", output, "--json").error
    assert error["code"] == "VALIDATION"
    assert "Output directory not found" in error["message"]
    assert not (workspace / "none").exists()
    assert [call for call in platform.calls() if "/blob/" in call] == []


@pytest.mark.parametrize(
    ("status", "fragment"), [("processing", "still processing"), ("error", "not available")]
)
def test_download_of_what_is_not_ready(osmosis, workspace, platform, status, fragment):
    stored(platform, status=status)
    assert fragment in osmosis("dataset", "download", "arith", "--json").error["message"]
    assert platform.calls() == ["GET /datasets/arith"]


def test_a_short_download_leaves_nothing_behind(osmosis, workspace, platform):
    stored(platform, content=b"short")
    before = set(workspace.iterdir())
    ran = osmosis("dataset", "download", "arith", "--json")
    assert "Download failed" in ran.error["message"]
    assert set(workspace.iterdir()) == before


def test_logs(osmosis, workspace, platform, context):
    entry = {
        "timestamp": "2026-07-01T10:00:00Z",
        "level": "info",
        "step": "processing",
        "message": "m",
        "details": "x",
    }
    platform.on("GET", "/datasets/arith/logs", {"logs": [entry, {}], "next_cursor": "a|b"})
    document = osmosis("dataset", "logs", "arith", "--limit", "7", "--cursor", "c|d", "--json").json
    assert document["items"][0] == {**entry, "details": None}
    assert (
        document["total_count"],
        document["has_more"],
        document["next_offset"],
        document["next_cursor"],
    ) == (2, True, None, "a|b")
    assert document["git"] == context["git"]
    assert platform.requests[0].query == {"limit": "7", "direction": "older", "cursor": "c|d"}
    assert (
        osmosis("dataset", "logs", "arith", "--plain").out.splitlines()[0]
        == "2026-07-01 10:00:00 AM UTC\tinfo\tprocessing\tm"
    )
