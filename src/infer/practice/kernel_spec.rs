//! Partition specs of attention kernels that split the sequence. In: a call of a flash attention kernel with a partition spec. Out: a spec whose third or fourth entry names an
//! axis: queries, keys and values are `[batch, heads, sequence, head dim]`, and each rank would attend to its own part of the sequence, or take
//! scores over a part of each head, alone. Never: a spec that is not written out. Source: torch_xla, `flash_attention`, which runs the kernel on each
//! shard by itself. Next: `../sharding`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::Rvalue;

/// `flash_attention(q, k, v, partition_spec=("fsdp", None, "tensor", None), mesh=mesh)`
pub fn splits(view: &View<'_>, out: &mut Found) {
    // An axis of one rank splits nothing.
    let one =
        |line: &str| near::has_any(line, &["mesh(", "_shape", "shape ="]) && near::has_any(line, &[", 1)", "(1, "]);
    if view.file().lines().any(|line| one(&line.to_lowercase())) {
        return;
    }
    for i in 0..view.steps.len() {
        let Some(value @ Rvalue::Call { args, .. }) = view.value(i) else { continue };
        let kernel = view.callee(value).is_some_and(|path| path.ends_with("custom_kernel.flash_attention"));
        let Some(given) = view.argument(args, usize::MAX, "partition_spec").filter(|_| kernel) else { continue };
        let mut at = view.place(view.steps[i].id);
        let mut spec = near::deep(view, &view.expr(given));
        if let (Some(name), Some(class)) = (near::own_attribute(view, &spec), near::class_of(view)) {
            let set = near::assigned(view, class, name);
            let [(method, step, value)] = set.as_slice() else { continue };
            at = method.place(method.steps[*step].id);
            spec = near::deep(method, &method.expr(value));
        }
        let Expr::Build(entries) = &spec else { continue };
        let [_, _, sequence, head] = entries.as_slice() else { continue };
        let axis = |e: &Expr| e.string().cloned();
        if let Some((axis, of_sequence)) = axis(sequence).map(|a| (a, true)).or(axis(head).map(|a| (a, false))) {
            let call = view.place(view.steps[i].id);
            out.push((at, Practice::Unshared(Unshared::KernelSplit { axis, of_sequence, call })));
        }
    }
}
