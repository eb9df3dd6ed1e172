"""Every name that user code, tests and tools reach in the SDK, by the module they find it in."""

import importlib
import importlib.metadata
from pathlib import Path

import pytest

import osmosis_ai
from osmosis_ai.rollout.backend.harbor.backend import MIGRATION_DOCS_URL

TYPES = (
    "BaseConfig ConcurrencyConfig AgentWorkflowConfig GraderConfig RolloutSample MessageDict Messages "
    "RolloutStatus GraderStatus RolloutErrorCategory ExecutionRequest ExecutionResult AgentWorkflowOutput coerce_output "
    "RolloutInitRequest RolloutInitResponse RolloutCompleteRequest GraderInitRequest GraderInitResponse "
    "GraderCompleteRequest RolloutStatusResponse CancelRolloutsRequest CancelRolloutsResponse"
)
NAMES = {
    "consts": "PACKAGE_VERSION",
    "cli.main": "main",
    "rollout.agent_workflow": "AgentWorkflow",
    "rollout.grader": "Grader",
    "rollout.types": TYPES,
    "rollout.backend": "ExecutionBackend LocalBackend ResultCallback",
    "rollout.backend.base": "ExecutionBackend ResultCallback",
    "rollout.backend.local.backend": "LocalBackend",
    "rollout.backend.harbor.backend": "HarborBackend MIGRATION_DOCS_URL CredentialScrubError",
    "rollout.backend.harbor.trial": "PendingTrial TRIAL_NAME_PREFIX",
    "rollout.backend.harbor.tasks": "HarborTask TaskMode parse_task_ref patch_dockerfile_with_sdk venv_or_fallback_script "
    "venv_or_fallback_install SDK_REQUIREMENTS_FILENAME",
    "rollout.backend.harbor.harness_agent": "OsmosisHarnessInstalledAgent",
    "rollout.backend.harbor.diagnostics": "trial_timings failure_phase agent_phase_failure redact_secrets",
    "rollout.backend.harbor.artifacts": "retain_trial_logs",
    "rollout.backend.harbor.environment": "chat_endpoint_host apply_chat_endpoint_egress load_task_network_config "
    "apply_managed_skypilot_placement",
    "rollout.server.app": "create_rollout_server post_json_with_retry save_trajectory _SHUTDOWN_DRAIN_SEC _handle_rollout",
    "rollout.server.auth": "ControllerAuth",
    "rollout.integrations.agents.strands": "OsmosisRolloutModel OsmosisStrandsAgent StrandsAgentSampleSource StrandsAgent "
    "LiteLLMModel",
    "rollout.integrations.agents.openai_agents": "OsmosisAgent OsmosisLitellmModel OsmosisMemorySession "
    "OsmosisRolloutModel SessionSampleSource Converter",
    "rollout.trajectory": "convert_sample_to_trajectory save_trajectory report_from_response TrajectoryReport",
    "rollout.trajectory.report": "SampleReport LlmCallMetrics",
    "rollout.trajectory.converter": "_messages_to_steps",
    "rollout.trajectory.save": "save_trajectory default_artifact_root",
    "rollout.trajectory.atif": "Agent ContentPart FinalMetrics ImageSource Metrics Observation ObservationResult Step "
    "SubagentTrajectoryRef ToolCall Trajectory format_trajectory_json",
    "rollout.driver": "RolloutDriver RolloutOutcome RolloutRunRequest",
    "rollout.http_driver": "HttpRolloutDriver RolloutProtocolError _retry_after_seconds",
    "rollout.controller": "CallbackStore DuplicateRegistrationError UnknownRolloutIdError TerminalCallbackResult "
    "duplicate_callback_payload CallbackListener create_callback_app LiteLLMBridge create_bridge_router",
    "rollout.controller.listener": "_START_POLL_ATTEMPTS _START_POLL_INTERVAL_SEC",
    "rollout.controller.llm_bridge": "_get_litellm",
    "rollout.utils.http": "get_shared_client close_shared_client post_json_with_retry _is_retryable_exception",
    "rollout.utils.messages": "map_initial_messages_to_content_blocks",
    "rollout.utils.rewards": "validate_sample_has_reward",
    "rollout.validator": "validate_backend ValidationResult ValidationError resolved_agent_name",
    "rollout.container.files": "AGENT_LOGS_DIR VERIFIER_LOGS_DIR INPUT_FILENAME RESULT_FILENAME ContainerInput "
    "ContainerResult write_reward",
    "rollout.container.runner": "run_agent agent_main grader_main load_sample write_trajectory_json AGENT_LOGS_DIR",
    "rollout.container.trajectories": "messages_from_trajectory",
    "packaging": "build_bundle inspect_bundle BundleInfo",
    "eval.rubric": "evaluate_rubric RubricResult MissingAPIKeyError ProviderRequestError ModelNotFoundError",
    "eval.rubric.engine": "_parse_provider _to_litellm_model _default_timeout_for_model _sanitize_json _build_user_prompt "
    "DEFAULT_REQUEST_TIMEOUT_SECONDS _litellm_completion",
    "eval.rubric.dataset": "load_rubric_dataset RubricRecord extract_assistant_content",
    "eval.rubric.report": "calculate_statistics RecordResult RubricReport ConsoleReportRenderer JsonReportWriter",
    "eval.rubric.cli": "RubricCommand evaluate_rubric",
}


@pytest.mark.parametrize("module", NAMES)
def test_names(module: str) -> None:
    found = importlib.import_module(f"osmosis_ai.{module}")
    assert [name for name in NAMES[module].split() if not hasattr(found, name)] == []


def test_the_distribution() -> None:
    metadata = importlib.metadata.distribution("osmosis-ai")
    assert metadata.metadata["Requires-Python"] == ">=3.12"
    commands = {point.name: point.value for point in metadata.entry_points.select(group="console_scripts")}
    assert commands == dict.fromkeys(("osmosis", "osmosis_ai", "osmosis-ai"), "osmosis_ai.cli.main:main")
    assert Path(osmosis_ai.__file__).with_name("py.typed").exists()
    assert osmosis_ai.__version__ == importlib.import_module("osmosis_ai.consts").PACKAGE_VERSION


@pytest.mark.parametrize("name", ["osmosis_ai", "osmosis_ai.rollout.server", "osmosis_ai.packaging"])
def test_an_unknown_name_of_a_facade(name: str) -> None:
    facade = importlib.import_module(name)
    with pytest.raises(AttributeError, match=rf"^module '{name}' has no attribute 'nothing'$"):
        _ = facade.nothing


def test_the_page_on_moving_exists() -> None:
    page, _, section = MIGRATION_DOCS_URL.partition("#")
    headings = [
        line for line in (Path(__file__).parents[3] / page).read_text().splitlines() if line.startswith("#")
    ]
    assert section in {heading.strip("# ").lower().replace(" ", "-").replace(".", "") for heading in headings}
