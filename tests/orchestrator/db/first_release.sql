INSERT INTO agent (agent_id, host, version, protocol, missing, seen_at)
VALUES ('embedded', 'h', '0', 1, '[]', '2026-01-01 00:00:00');
INSERT INTO environment (environment_id, fields) VALUES ('e', '{}');
INSERT INTO device (device_id, agent_id, kind, api, name, vendor, delegates, exclusion_group, environment_id,
                    facts, labels, epoch, present)
VALUES ('host-cpu', 'embedded', 'cpu', 'host', 'CPU', '', '[]', 'g', 'e', '{}', '{}', 0, true);
INSERT INTO campaign (no, campaign_id, name, created_at, submitted_at, level, reuse, manifest_sha256, content,
                      model_names, delegate_names, labels, parked)
VALUES (1, 'c', 'demo', '2026-01-01 00:00:00', '2026-01-01 00:00:00', 'quick', 'never', 'm', 'x',
        '[]', '[]', '{}', false);
INSERT INTO model (sha256, size_bytes, added_at)
VALUES ('0000000000000000000000000000000000000000000000000000000000000000', 1, '2026-01-01 00:00:00');
INSERT INTO cell (cell_id, campaign_no, key, series, position, rank, model, model_sha256, delegate, delegate_kind,
                  delegate_options, target, level, plan, inputs, soft_limit_s, expected_s, state)
VALUES ('cell', 1, 'k', 's', 0, 0, 'm', '0000000000000000000000000000000000000000000000000000000000000000',
        'cpu', 'cpu', '{}', 'host-cpu', 'quick',
        '{"level": "quick", "processes": 4, "warmup_runs": 2, "warmup_seconds": 0.5, "min_runs": 30,
          "max_runs": 100000, "min_seconds": 2.0, "max_seconds": 5.0}', '{}', 60, 1, 'queued');
