//! Calls that communicate, by name. In: calls. Out: what sort of communication they are. Never: groups or types.
//! Next: `handles.rs`, `ranks.rs`.

use super::view::View;
use crate::ir::{Arg, ArgKind, Const, Operand, Rvalue};
use crate::rules::{Entry, Form};
use crate::source::Name;

/// A call of `torch.distributed` or of a module with the same functions.
pub struct Raw<'a> {
    /// The last part of its name.
    pub name: Name,
    pub args: &'a [Arg],
    /// What it writes; of a send, what must not be written.
    pub buffer: Option<&'a Operand>,
    pub group: Option<&'a Operand>,
    pub sort: Sort,
}

/// Who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Every rank of the group.
    Everyone,
    Send,
    Receive,
}

impl<'a> Raw<'a> {
    /// Whether it returns a handle and goes on in the background.
    pub fn is_async(&self) -> bool {
        let set = |a: &Arg| {
            matches!(&a.kind, ArgKind::Keyword(k) if k == "async_op")
                && matches!(a.value, Operand::Const(Const::Bool(true)))
        };
        matches!(&*self.name, "isend" | "irecv") || self.args.iter().any(set)
    }
}

/// The raw communication that an operation is.
pub fn raw<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<Raw<'a>> {
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    if !view.may_communicate(value) {
        return None;
    }
    let (path, rule) = view.ruled(value)?;
    let rule = rule?;
    let name = super::lost::last(&path);
    match rule {
        Entry::Collective(rule) if !rule.differentiable && rule.args.index("async_op").is_some() => {
            let call = view.collective(value)?;
            let buffer = match rule.form {
                Form::InPlace => call.input,
                Form::IntoOutput | Form::IntoList => call.output,
                Form::Result | Form::SrcDst => return None,
            };
            Some(Raw { name, args, buffer, group: call.group, sort: Sort::Everyone })
        }
        Entry::Intrinsic(rule) => {
            let sort = match &*rule.does {
                "rooted-collective" if matches!(&*name, "P2POp" | "batch_isend_irecv") => return None,
                "rooted-collective" | "object-collective" if name.contains("send") => Sort::Send,
                "rooted-collective" | "object-collective" if name.contains("recv") => Sort::Receive,
                "rooted-collective" | "object-collective" | "barrier" => Sort::Everyone,
                _ => return None,
            };
            let buffer = match &*rule.does {
                "rooted-collective" => view.argument(args, 0, "tensor"),
                _ => None,
            };
            let keywords: Vec<Option<&Name>> = args.iter().map(keyword).collect();
            let group = rule.group.and_then(|g| rule.args.bind(&keywords).first(g)).map(|i| &args[i].value);
            Some(Raw { name, args, buffer, group, sort })
        }
        _ => None,
    }
}

fn keyword(arg: &Arg) -> Option<&Name> {
    match &arg.kind {
        ArgKind::Keyword(name) => Some(name),
        _ => None,
    }
}
