"""A revision that the code does not have yet."""

from __future__ import annotations

from orchestrator.db import migrate as migration


def add_revision(monkeypatch, folder, then="pass"):
    """Pretend that the code has a newer revision, which on SQLite rebuilds the table `cell`."""
    scripts = folder / "more"
    scripts.mkdir()
    (scripts / "v9998_mood.py").write_text(
        "import sqlalchemy as sa\nfrom alembic import op\n"
        f"revision = '9998'\ndown_revision = '{migration.HEAD}'\n"
        "def upgrade():\n"
        "    recreate = 'always' if op.get_bind().dialect.name == 'sqlite' else 'auto'\n"
        "    with op.batch_alter_table('cell', recreate=recreate) as batch:\n"
        "        batch.add_column(sa.Column('mood', sa.String(), nullable=True))\n"
        f"    {then}\n"
    )
    plain = migration.alembic_config

    def with_more():
        config = plain()
        own = f"{config.get_main_option('script_location')}/versions"
        config.set_main_option("version_locations", f"{own}:{scripts}")
        return config

    monkeypatch.setattr(migration, "alembic_config", with_more)
    monkeypatch.setattr(migration, "HEAD", "9998")
