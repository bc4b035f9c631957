//! `rules --verify`, and groups of the configuration: what is said of functions against their source. In: a small tree. Out: which rows its
//! source agrees with, and the axes that its getters stand for. Never: the real trees. Next: `usage.rs`.

use super::support::Session;

/// Wrappers that reshape, cut and join around an exchange, as the framework writes them.
const MAPPINGS: &str = r#"
import torch


class _AllToAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, group, input):
        ctx.group = group
        output = torch.empty_like(input)
        torch.distributed.all_to_all_single(output, input.contiguous(), group=group)
        return output

    @staticmethod
    def backward(ctx, *grad_output):
        return None, _AllToAll.apply(ctx.group, *grad_output)


def all_to_all_sp2hp(input_, group=None):
    world_size = group.size()
    input_ = input_.reshape(-1, input_.shape[-1])
    parts = torch.split(input_, split_size_or_sections=input_.shape[-1] // world_size, dim=1)
    joined = torch.cat(parts, dim=0)
    return _AllToAll.apply(group, joined)


def all_to_all_hp2sp(input_, group=None):
    world_size = group.size()
    input_ = input_.reshape(-1, input_.shape[-1])
    exchanged = _AllToAll.apply(group, input_)
    parts = torch.split(exchanged, split_size_or_sections=exchanged.shape[0] // world_size, dim=0)
    return torch.cat(parts, dim=-1)
"#;

/// A session with a package of these mappings.
fn tree(mappings: &str) -> Session {
    let session = Session::new();
    for package in ["megatron", "megatron/core", "megatron/core/tensor_parallel"] {
        session.write(&format!("{package}/__init__.py"), "");
    }
    session.write("megatron/core/tensor_parallel/mappings.py", mappings);
    session
}

#[test]
fn wrappers_are_derived_with_what_they_do_around_the_function() {
    let session = tree(MAPPINGS);
    let ran = session.run(&["rules", "--verify", "."]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("mappings.all_to_all_sp2hp: S(0) -> S(-1): agrees"), "{ran:?}");
    assert!(ran.out.contains("mappings.all_to_all_hp2sp: S(-1) -> S(0): agrees"), "{ran:?}");
}

#[test]
fn a_wrapper_that_joins_along_another_dim_disagrees() {
    let other = MAPPINGS.replace("return torch.cat(parts, dim=-1)", "return torch.cat(parts, dim=0)");
    let session = tree(&other);
    let ran = session.run(&["rules", "--verify", "."]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.out.contains("all_to_all_hp2sp: S(-1) -> S(0): disagrees: the source says S(0) -> S(0)"), "{ran:?}");
}

/// A fork under a name of its own, whose copy lacks the sum of the gradients.
const FORK: &str = r#"
import torch


def get_group():
    return None


class _Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input_):
        return input_

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def copy_to_tensor_model_parallel_region(input_):
    return _Copy.apply(input_)
"#;

#[test]
fn a_fork_under_another_name_disagrees() {
    let session = Session::new();
    session.write("fork/__init__.py", "");
    session.write("fork/tensor_parallel/__init__.py", "");
    session.write("fork/tensor_parallel/mappings.py", FORK);
    let ran = session.run(&["rules", "--verify", "."]);
    assert_eq!(ran.code, 1, "{ran:?}");
    let says = "fork.tensor_parallel.mappings.copy_to_tensor_model_parallel_region: I -> R: disagrees";
    assert!(ran.out.contains(says), "{ran:?}");
}

#[test]
fn a_path_that_does_not_exist_is_no_success() {
    let ran = Session::new().run(&["rules", "--verify", "nowhere"]);
    assert_eq!(ran.code, 2, "{ran:?}");
}

/// A column layer whose constructor takes the number of ranks of a getter's group.
const GETTER: &str = r#"
import torch
import torch.distributed as dist

_GROUP = None


def get_own_group():
    return _GROUP


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, grad):
        dist.all_reduce(grad, group=get_own_group())
        return grad


class Column(torch.nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(n_out // dist.get_world_size(get_own_group()), n_in))

    def forward(self, x):
        return torch.nn.functional.linear(Copy.apply(x), self.weight)
"#;

#[test]
fn a_configured_group_holds_for_calls() {
    for key in ["get_own_group()", "layers.get_own_group()", "_GROUP"] {
        let session = Session::new();
        session.write("layers.py", GETTER);
        session.write("spmd-check.toml", format!("[groups]\n\"{key}\" = \"model\"\n"));
        let ran = session.run(&["types", "."]);
        assert!(ran.out.contains("Column.forward(x: I@model) -> S(-1)@model"), "{key}: {ran:?}");
    }
}

#[test]
fn an_entry_that_no_file_has_is_told() {
    let session = Session::new();
    session.write("layers.py", GETTER);
    session.write("spmd-check.toml", "[groups]\n\"nonsense()\" = \"model\"\n[flags]\nconfig.sequnce_parallel = true\n");
    let ran = session.run(&["check", "."]);
    assert!(ran.err.contains("note: `nonsense()` of `[groups]` occurs in none of these files"), "{ran:?}");
    assert!(ran.err.contains("note: `config.sequnce_parallel` of `[flags]` occurs in none of these files"), "{ran:?}");
}
