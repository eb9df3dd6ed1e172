"""Tokens of Hugging Face, and uploads of checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "hub_tokens",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=True),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("nonce", sa.LargeBinary(), nullable=False),
        sa.Column("ciphertext", sa.LargeBinary(), nullable=False),
        sa.Column("creator_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["creator_id"], ["users.id"], name=op.f("fk_hub_tokens_creator_id")),
        sa.ForeignKeyConstraint(["workspace_id"], ["workspaces.id"], name=op.f("fk_hub_tokens_workspace_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hub_tokens")),
        sa.UniqueConstraint("workspace_id", "name", name=op.f("uq_hub_tokens_workspace_id_name")),
    )
    op.create_index(op.f("ix_hub_tokens_created_at"), "hub_tokens", ["created_at"], unique=False)
    op.create_index(op.f("ix_hub_tokens_workspace_id"), "hub_tokens", ["workspace_id"], unique=False)
    op.create_table(
        "hub_uploads",
        sa.Column("model_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("token_id", sa.String(), nullable=True),
        sa.Column("repository", sa.String(), nullable=False),
        sa.Column("private", sa.Boolean(), nullable=False),
        sa.Column("status", sa.String(), nullable=False),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("url", sa.String(), nullable=True),
        sa.Column("uploader_id", sa.String(), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["model_id"], ["lora_models.id"], name=op.f("fk_hub_uploads_model_id")),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_hub_uploads_run_id")),
        sa.ForeignKeyConstraint(["token_id"], ["hub_tokens.id"], name=op.f("fk_hub_uploads_token_id")),
        sa.ForeignKeyConstraint(["uploader_id"], ["users.id"], name=op.f("fk_hub_uploads_uploader_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_hub_uploads")),
        sa.UniqueConstraint("model_id", name=op.f("uq_hub_uploads_model_id")),
    )
    op.create_index(op.f("ix_hub_uploads_created_at"), "hub_uploads", ["created_at"], unique=False)
    op.create_index(op.f("ix_hub_uploads_run_id"), "hub_uploads", ["run_id"], unique=False)
