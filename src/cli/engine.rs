//! The one place where the command line meets the checker. In: a configuration and files. Out: a report.
//! Never: logic of its own. Next: the modules named here.

pub(super) use crate::engine_stub::{
    CODES, Coverage, TypeRow, Want, check, dump_ir, page, rule_book, rule_files, type_text,
};
