"""Counts what trains a model in libraries that an agent's program has imported; part of the hook beside it.

Every function here is wrapped so that the library behaves as before: the wrapper reports and passes on. Whether a
step trains is decided by what it changes: parameters of a network (``torch.nn.Parameter``) do, plain tensors (image
parameters of a registration or a denoising solver) do not. Rules: docs/specification.md, 9.9. Python 3.8.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import os
import weakref
from typing import Any, Callable  # noqa: UP035 - Python 3.8

Say = Callable[[str, str], None]

SAMPLED_PARAMETERS = 4
SAMPLED_VALUES = 8
SAMPLED_CALLS = 3
MOST_NODES = 2000  # of a graph that is looked through for parameters


def watch(module: Any, say: Say) -> None:
    """Watch a library that was just imported."""
    name = module.__name__
    known = {"torch": _torch, "jax": _jax, "optax": _optax, "keras": _keras, "sklearn.base": _sklearn}
    known.get(name, _boosting)(module, say)


def _torch(torch: Any, say: Say) -> None:
    counts: dict[str, int] = {}
    sampled: list[tuple[Any, list[float]]] = []
    process = os.getpid()

    def count(kind: str, detail: str) -> None:
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] == 1:
            say(kind, detail)

    def stepped(optimiser: Any, *_: Any, **__: Any) -> None:
        trained = any(
            isinstance(tensor, torch.nn.Parameter) for group in optimiser.param_groups for tensor in group["params"]
        )
        count("torch.step" if trained else "torch.optimise", type(optimiser).__name__)

    def values(parameter: Any) -> list[float]:
        return [float(value) for value in parameter.detach().reshape(-1)[:SAMPLED_VALUES].tolist()]

    def compare() -> None:
        for reference, before in sampled:
            parameter = reference()
            if parameter is not None and values(parameter) != before:
                count("torch.changed", "parameters changed after a gradient")
                return

    def sample(parameters: list[Any]) -> None:
        compare()
        if counts.get("torch.backward", 0) + counts.get("torch.grad", 0) <= SAMPLED_CALLS:
            chosen = parameters[:SAMPLED_PARAMETERS]
            sampled[:] = [(weakref.ref(parameter), values(parameter)) for parameter in chosen]

    def differentiated(inputs: Any) -> None:
        count("torch.grad", "torch.autograd.grad")
        found = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        sample([tensor for tensor in found if isinstance(tensor, torch.nn.Parameter)])

    def propagated(tensors: Any) -> None:
        count("torch.backward", "backward")
        found = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        sample([leaf for leaf in _leaves(found) if isinstance(leaf, torch.nn.Parameter)])

    def at_end() -> None:
        if os.getpid() == process:  # a forked worker has its parent's samples
            compare()

    # Not an attribute of its package, which deletes it.
    hooks = getattr(importlib.import_module("torch.optim.optimizer"), "register_optimizer_step_post_hook", None)
    if hooks is not None:
        hooks(stepped)
    else:  # PyTorch 1
        _before(torch.optim.Optimizer, "zero_grad", lambda self, *_, **__: stepped(self))
    _before(torch.autograd, "backward", lambda tensors, *_, **__: propagated(tensors))
    _before(torch.autograd, "grad", lambda _outputs, inputs, *_, **__: differentiated(inputs))
    _before(
        torch.nn.Module, "train", lambda self, mode=True: count("torch.train", type(self).__name__) if mode else None
    )
    atexit.register(_silently(at_end))


def _leaves(tensors: Any) -> list[Any]:
    """Tensors that gradients of ``tensors`` are collected in, as far as a bounded walk over the graph finds them."""
    pending = [tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None]
    seen: set[Any] = set()
    leaves: list[Any] = []
    while pending and len(seen) < MOST_NODES and len(leaves) < SAMPLED_PARAMETERS:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            leaves += [node.variable] if hasattr(node, "variable") else []
            pending += [following for following, _ in node.next_functions if following is not None]
    return leaves


def _jax(jax: Any, say: Say) -> None:
    for name in ("grad", "value_and_grad"):
        made = getattr(jax, name)

        def make(function: Any, *args: Any, _made: Any = made, _name: str = name, **options: Any) -> Any:
            gradient = _made(function, *args, **options)

            @functools.wraps(gradient)
            def counted(*values: Any, **named: Any) -> Any:
                say("jax.grad", f"jax.{_name}")
                return gradient(*values, **named)

            return counted

        setattr(jax, name, functools.wraps(made)(make))


def _optax(optax: Any, say: Say) -> None:
    _before(optax, "apply_updates", lambda *_, **__: say("jax.step", "optax.apply_updates"))


def _keras(keras: Any, say: Say) -> None:
    _before(keras.Model, "fit", lambda self, *_, **__: say("fit.keras", type(self).__name__))


def _sklearn(base: Any, say: Say) -> None:
    """Every estimator's ``fit`` goes through one decorator; supervised is a fit with ``y``."""
    decorate = getattr(base, "_fit_context", None)
    if decorate is None:
        return

    @functools.wraps(decorate)
    def fit_context(*options: Any, **named: Any) -> Any:
        decorator = decorate(*options, **named)

        def wrap(fit: Any) -> Any:
            inner = decorator(fit)

            @functools.wraps(inner)
            def counted(estimator: Any, *args: Any, **more: Any) -> Any:
                if (args[1] if len(args) > 1 else more.get("y")) is not None:
                    say("fit.sklearn", type(estimator).__name__)
                return inner(estimator, *args, **more)

            return counted

        return wrap

    base._fit_context = fit_context


def _boosting(module: Any, say: Say) -> None:
    name = module.__name__
    _before(module, "train", lambda *_, **__: say("fit.boosting", f"{name}.train"))


def _before(owner: Any, name: str, look: Callable[..., Any]) -> None:
    """Replace ``owner.name`` by a function that looks first; what a look raises is dropped."""
    original = getattr(owner, name)
    quiet = _silently(look)

    @functools.wraps(original)
    def wrapped(*args: Any, **options: Any) -> Any:
        quiet(*args, **options)
        return original(*args, **options)

    setattr(owner, name, wrapped)


def _silently(function: Callable[..., Any]) -> Callable[..., None]:
    def quiet(*args: Any, **options: Any) -> None:
        try:
            function(*args, **options)
        except Exception:
            return

    return quiet
