//! `rules --verify`: the rows of the tables against the source of a framework. In: a small tree with the names of one. Out: which rows
//! its source agrees with. Never: the real trees. Next: `usage.rs`.

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
