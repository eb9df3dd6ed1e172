"""What a workspace directory needs, and what doctor does about it."""

import shutil

import pytest


def test_commands_need_a_worktree(osmosis, tmp_path):
    for command in (
        ["dataset", "list"],
        ["doctor"],
        ["rollout", "init", "x"],
        ["template", "apply", "multiply-local-openai"],
    ):
        ran = osmosis("--json", *command)
        assert (ran.code, ran.error["code"]) == (1, "WORKSPACE_REQUIRED"), command
        assert "Osmosis workspace directory" in ran.error["message"]


def test_checks_come_in_order(osmosis, bare_workspace, git):
    shutil.rmtree(bare_workspace / "data")
    git(bare_workspace, "remote", "remove", "origin")
    ran = osmosis("--json", "dataset", "list")
    assert "missing required Osmosis scaffold paths" in ran.error["message"]
    assert "osmosis doctor --fix" in ran.error["message"]
    assert ran.error["details"]["missing"] == ["data/"]
    (bare_workspace / "data").mkdir()
    assert "Set `origin`" in osmosis("--json", "dataset", "list").error["message"]
    git(bare_workspace, "remote", "add", "origin", "https://github.com/a/b.git")
    ran = osmosis("--json", "dataset", "list")
    assert (ran.error["code"], ran.error["message"]) == (
        "AUTH_REQUIRED",
        "Not logged in. Run 'osmosis auth login' first.",
    )
    assert ran.error["details"] == {"platform_url": "http://127.0.0.1:8400"}
    assert (
        osmosis("--plain", "dataset", "list").err == "Error: Not logged in. Run 'osmosis auth login' first.\n"
    )
    assert "The platform is http://127.0.0.1:8400." in osmosis("dataset", "list").err


def test_doctor_on_a_complete_workspace(osmosis, workspace, platform):
    platform.on(
        "GET",
        "/verify",
        {"user": {"id": "u", "email": "a@b.c"}, "workspace": {"id": "w", "name": "acme", "role": "owner"}},
    )
    resource = osmosis("--json", "doctor", str(workspace / "rollouts/calc/main.py")).json["resource"]
    assert resource == {
        "workspace_directory": str(workspace),
        "git": {"identity": "team/space", "remote_url": "https://github.com/Team/Space.git"},
        "workspace": {"id": "w", "name": "acme", "role": "owner"},
        "required_paths": ["rollouts/", "configs/training/", "configs/eval/", "data/"],
        "missing": [],
        "valid": True,
        "fixed": False,
    }
    assert "Linked workspace: acme" in osmosis("--plain", "doctor").out


def test_doctor_works_logged_out_and_with_a_bad_origin(osmosis, bare_workspace, git):
    git(bare_workspace, "remote", "set-url", "origin", "https://gitlab.com/a/b.git")
    ran = osmosis("--json", "doctor")
    assert ran.code == 0
    resource = ran.json["resource"]
    assert resource["workspace"] is None
    assert resource["git"]["identity"] is None
    assert "hosted on github.com" in resource["git"]["warning"]


def test_doctor_reports_then_fixes_and_never_overwrites(osmosis, bare_workspace):
    shutil.rmtree(bare_workspace / "configs")
    (bare_workspace / "AGENTS.md").write_text("mine")
    (bare_workspace / "CLAUDE.md").unlink()
    ran = osmosis("--json", "doctor")
    assert ran.code == 1
    assert ran.err == ""
    assert ran.json["status"] == "failed"
    assert ran.json["message"] == "Workspace doctor found missing scaffold paths."
    assert ran.json["resource"]["missing"] == [
        "configs/training/",
        "configs/eval/",
        "CLAUDE.md",
        "configs/AGENTS.md",
    ]
    assert "osmosis doctor --fix" in osmosis("--plain", "doctor").out
    ran = osmosis("--json", "doctor", "--fix")
    assert ran.code == 0
    assert ran.json["resource"]["fixed"] is True
    assert ran.json["resource"]["missing"] == []
    assert (bare_workspace / "configs/eval/.gitkeep").exists()
    assert (bare_workspace / "AGENTS.md").read_text() == "mine"
    assert osmosis("--json", "doctor", "--fix").json["resource"]["fixed"] is False


def test_doctor_does_not_write_through_symlinks(osmosis, bare_workspace, tmp_path):
    shutil.rmtree(bare_workspace / "configs")
    outside = tmp_path / "outside"
    outside.mkdir()
    (bare_workspace / "configs").symlink_to(outside)
    ran = osmosis("--json", "doctor", "--fix")
    assert (ran.code, ran.error["code"]) == (1, "CONFLICT")
    assert list(outside.iterdir()) == []


def test_doctor_needs_an_existing_path(osmosis):
    assert osmosis("doctor", "nowhere").code == 2


@pytest.mark.parametrize("offline", ["template list", "dataset validate x", "auth logout", "upgrade"])
def test_some_commands_work_anywhere(osmosis, offline):
    ran = osmosis("--json", *offline.split())
    if ran.code:
        assert ran.error["code"] == "VALIDATION"
    else:
        assert ran.json["schema_version"] == 1


def test_templates_and_scaffolds(osmosis, bare_workspace):
    assert osmosis("--json", "template", "list").json["items"] == [
        {"name": "multiply-harbor-strands"},
        {"name": "multiply-local-openai"},
        {"name": "multiply-local-strands"},
    ]
    assert osmosis("template", "list").out.endswith("osmosis template apply <name>\n")
    document = osmosis("--json", "template", "apply", "multiply-local-openai").json
    assert document["operation"] == "template.apply"
    assert document["resource"]["destinations"][0] == str(bare_workspace / "rollouts/multiply-local-openai")
    assert osmosis("--json", "template", "apply", "multiply-local-openai").error["code"] == "CONFLICT"
    assert osmosis("--json", "template", "apply", "nope").error["code"] == "NOT_FOUND"
    document = osmosis("--json", "rollout", "init", "mine").json
    assert document["operation"] == "rollout.init"
    assert document["resource"]["configs"]["eval"] == str(bare_workspace / "configs/eval/mine.toml")
    assert "git" not in document["resource"]
    assert "Refusing to overwrite" in osmosis("--json", "rollout", "init", "mine").error["message"]
    for arguments in (("rollout", "init", "mine"), ("template", "apply", "multiply-local-openai")):
        text = osmosis("--plain", *arguments, "--force").out
        assert text.index("git add . && git commit") < text.index("git push") < text.index("eval submit")
        # Beside this program: elsewhere an index would give another program of the SDK's name.
        assert text.index("install it beside this program") < text.index(
            f"pip install -e rollouts/{arguments[2]}"
        )
    text = osmosis("--plain", "rollout", "init", "mine", "--force").out
    assert "osmosis eval submit configs/eval/mine.toml" in text


def test_a_folder_that_leads_elsewhere_is_not_repaired_around(osmosis, bare_workspace, tmp_path):
    import shutil

    shutil.rmtree(bare_workspace / "rollouts")
    (bare_workspace / "rollouts").symlink_to(tmp_path)
    shutil.rmtree(bare_workspace / "data")
    assert osmosis("doctor", "--json").code == 1
    error = osmosis("doctor", "--fix", "--json").error
    assert error["code"] == "CONFLICT"
    assert "rollouts" in error["message"]
    assert not (bare_workspace / "data").exists()
