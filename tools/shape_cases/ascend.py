"""The tables of vllm-ascend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from castq.shapes.ascend.attention import batch_label, split_decodes
from castq.shapes.ascend.batch_jobs import BatchJobSettings, DecodeLengths, best_fit, job_order, reserved_blocks
from castq.shapes.ascend.data_parallel import agree, exchange_skipped
from castq.shapes.ascend.experts import MoeLayout, mc2_capacity, moe_exchange
from castq.shapes.ascend.graphs import ascend_graphs
from castq.shapes.ascend.schedulers import batch_job_scheduler, short_first_steps
from castq.shapes.ascend.sequence_parallel import round_tokens, sp_gate
from castq.shapes.ascend.settings import AscendSettings
from castq.shapes.ascend.startup import kv_block_size, largest_decode
from castq.shapes.ascend.step import Scheduled, ascend_step
from castq.shapes.vllm.graph_dispatch import GraphKey
from castq.shapes.vllm.graph_modes import AttentionSupport, GraphMode
from castq.shapes.vllm.replay import replay
from shape_cases import Case, Engine
from shape_cases.vllm import arrivals, settings, trace

__all__ = ["ENGINES"]

_NAMES: Final = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "tp": "tensor_parallel_size",
    "sp": "sp",
    "dsa_cp": "dsa_context_parallel",
    "shared_expert_dp": "shared_expert_dp",
    "num_spec_tokens": "num_spec_tokens",
    "max_capture_size": "max_capture_size",
    "enforce_eager": "enforce_eager",
    "reduced_capture_device": "reduced_capture_device",
}


def _settings(case: Case) -> AscendSettings:
    given: dict[str, Any] = {ours: case[theirs] for theirs, ours in _NAMES.items() if theirs in case}
    sizes = case.get("capture_sizes")
    return AscendSettings(
        mode=GraphMode(case.get("mode", "FULL_AND_PIECEWISE")),
        attention_support=AttentionSupport(case.get("attention_support", "ALWAYS")),
        capture_sizes=None if sizes is None else tuple(sizes),
        **given,
    )


def _sequence_parallel(group: str, case: Case) -> object:
    if group == "round":
        padded = round_tokens(case["tokens"], case["tp"], active=case["sp"] or case["dsa_cp"])
        return {"tokens_padded": padded, "padding": padded - case["tokens"]}
    gate = sp_gate(
        case["all2all_backend"],
        expert_parallel=case["expert_parallel"],
        tensor_parallel_size=case["tp"],
        data_parallel_size=case["dp"],
        flashcomm=case["flashcomm"],
        dsa_context_parallel=case["dsa_cp"],
    )
    return {"sp": gate.on, "all2all_backend": gate.backend}


def _graph(group: str, case: Case) -> object:
    graphs = ascend_graphs(_settings(case))
    if group == "sizes":
        return {
            "mode": graphs.mode.value,
            "capture_sizes": graphs.sizes,
            "max_capture_size": graphs.largest,
            "full_keys": _keys(graphs.full_keys),
            "piecewise_keys": _keys(graphs.piecewise_keys),
        }
    run = graphs.dispatch(case["tokens"], uniform=case["uniform"])
    found = {"mode": run.mode.name, "tokens_padded": run.tokens}
    return {**found, "graph_reqs": run.requests, "uniform": run.uniform}


def _keys(keys: Sequence[GraphKey]) -> object:
    return [[key.tokens, key.requests, key.uniform] for key in keys]


def _requests(given: Sequence[Sequence[int]]) -> list[Scheduled]:
    return [Scheduled(*one) for one in given]


def _step(group: str, case: Case) -> object:
    settings = _settings(case)
    requests = _requests(case["reqs"])
    step = ascend_step(requests, settings, ascend_graphs(settings))
    drafts = settings.num_spec_tokens
    valid = [1 if drafts and one.computed >= one.prompt else one.tokens for one in requests]
    label = batch_label(
        [one.computed for one in requests],
        [one.tokens for one in requests],
        valid,
        method="mtp" if drafts else None,
    )
    return {
        "attn_state": label.state.value,
        "sp_tokens": step.sp_tokens,
        "mode": step.run.mode.name,
        "tokens_padded": step.run.tokens,
        "graph_reqs": step.run.requests,
        "uniform": step.run.uniform,
        "boundary_padding_applied": step.boundary_padded,
        "reqs_padded": step.requests_padded,
        "dummy_requests": step.dummy_requests,
        "query_boundaries": step.boundaries,
        "boundary_covers_padding": step.covers_padding,
        "seq_lens_kv": step.kv_lens,
        "block_table_rows": step.requests_padded,
        "dummy_row_block_ids": step.dummy_row_block_ids,
        "kv_write_tokens": step.kv_write_tokens,
        "padded_slots": step.padded_slots,
        "num_decodes": step.decodes,
        "num_prefills": step.prefills,
    }


def _data_parallel(group: str, case: Case) -> object:
    settings = _settings(case)
    ranks = [_requests(rank) for rank in case["ranks"]]
    steps = agree(ranks, settings, ascend_graphs(settings), exchange=not case.get("dp_sync_skipped", False))
    return [
        {
            "sp_tokens": step.sp_tokens,
            "mode": step.run.mode.name,
            "num_tokens_padded": step.run.tokens,
            "desc_num_reqs": step.run.requests,
            "desc_uniform": step.run.uniform,
            "num_tokens_across_dp": step.tokens_across_ranks,
        }
        for step in steps
    ]


def _attention(group: str, case: Case) -> object:
    if group == "split":
        return {"split": split_decodes(case["query_lens"], case["threshold"], require_uniform=case["require_uniform"])}
    label = batch_label(
        case["computed"], case["scheduled"], case["valid"], method=case["method"], chunked=case["chunked"]
    )
    states = {"attn_state": label.state.value, "runner_attn_state": label.kernels.value}
    return {**states, "with_prefill": label.with_prefill}


def _experts(group: str, case: Case) -> object:
    layout = MoeLayout(
        device=case["device"].removeprefix("_"),
        expert_parallel=case["ep"],
        expert_parallel_size=case["ep_size"],
        world_size=case["world"],
        tensor_parallel_size=case["tp"],
        experts_per_token=case["topk"],
        moe=case.get("moe", True),
        lora=case.get("lora", False),
        fused_mc2=bool(case.get("fused_mc2", 0)),
    )
    largest = case["max_capture_size"] or case["max_num_seqs"] * case["query_len"]
    if case.get("prefill_mc2"):
        largest = case["max_num_batched_tokens"]
    capacity = mc2_capacity(largest, case["tp"])
    found = moe_exchange(layout, case["max_tokens_across_dp"], capacity)
    return {"mc2_capacity": capacity, "method": found.method, "padded_tokens_per_dp": found.tokens_per_rank}


def _config(group: str, case: Case) -> object:
    if group == "block":
        size = kv_block_size(
            case["block_size"],
            prefix_caching=case["prefix_caching"],
            chunked_prefill=case["chunked"],
            hybrid=case["hybrid"],
            model_type=case["model_type"],
        )
        return {"block_size": size}
    if group == "potential":
        found = largest_decode(
            case["max_num_seqs"],
            case["num_spec_tokens"] + 1,
            case["max_num_batched_tokens"],
            case["max_capture_size"],
        )
        return {"potential_max_tokens": found.tokens, "warn": found.beyond_graphs}
    skipped = exchange_skipped(
        moe=case["moe"],
        kv_consumer=case["kv_consumer"],
        decode_method=case["decode_method"],
        prefill_method=case["prefill_method"],
        separate_decodes=case["separate_decode_routine"],
        recompute_scheduler=case["recompute_scheduler"],
        hierarchy=case["mc2_comm_alg"] == "hierarchy",
        mega_moe=case["mega_moe"],
    )
    return {"skip": skipped}


def _short_first(group: str, case: Case) -> object:
    steps = short_first_steps(
        settings(case),
        arrivals(case["arrivals"]),
        step_ms=case["step_ms"],
        threshold=case["threshold"],
        long_max_wait_ms=case["long_max_wait_ms"],
    )
    return trace(steps)


def _batch_jobs(group: str, case: Case) -> object:
    jobs = BatchJobSettings(**{ours: case[theirs] for theirs, ours in _JOB_NAMES.items() if theirs in case})
    if group == "estimator":
        lengths, predictions = DecodeLengths(jobs), []
        for job, length in case["observations"]:
            lengths.observe(job, length)
            predictions.append([job, lengths.predict(job)])
        return {"predictions": predictions, "cold": DecodeLengths(jobs).predict("")}
    if group == "order":
        return {"order": job_order(dict(case["jobs"]), case["admission_budget"], jobs)}
    if group == "best_fit":
        at = best_fit(case["prompt_lengths"], case["budget"])
        return {"picked": None if at is None else f"q{at}"}
    if group == "reserve":
        running = [(computed, prompt) for computed, prompt in case["running"]]
        blocks = reserved_blocks(
            running, case["block_size"], case["budget"], lookahead=case["lookahead"], settings=jobs
        )
        return {"reserve_blocks": blocks}
    return trace(replay(batch_job_scheduler(settings(case), jobs), arrivals(case["arrivals"])))


_JOB_NAMES: Final = {
    "max_jobs": "max_jobs",
    "reserve_margin_blocks": "margin_blocks",
    "reserve_max_blocks": "most_reserved_blocks",
    "low_available_tokens_threshold": "low_available_tokens",
    "short_decode_token_threshold": "short_decode_tokens",
}

ENGINES: Mapping[str, Engine] = {
    "sched_ascend_batch_job": _batch_jobs,
    "sched_ascend_srf": _short_first,
    "ascend_attn_state": _attention,
    "ascend_config": _config,
    "ascend_dp": _data_parallel,
    "ascend_graph": _graph,
    "ascend_moe_dp": _experts,
    "ascend_sp": _sequence_parallel,
    "ascend_step": _step,
}
