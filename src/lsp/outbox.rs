//! Everything that goes to the client, from any thread. In: answers, notifications, requests of ours. Out: messages, each request answered
//! exactly once. Never: an answer to a request that was cancelled. Next: `server.rs`.

use super::transport::{answer, refusal};
use lsp_server::{ErrorCode, RequestId};
use rustc_hash::FxHashSet;
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Mutex, PoisonError};

/// The way to the client.
pub struct Outbox {
    send: Sender<Value>,
    open: Mutex<FxHashSet<RequestId>>,
    next: AtomicI64,
}

/// Why a request has no result.
pub struct Refusal(pub ErrorCode, pub String);

impl Outbox {
    pub fn new(send: Sender<Value>) -> Outbox {
        Outbox { send, open: Mutex::default(), next: AtomicI64::new(1) }
    }

    fn open(&self) -> std::sync::MutexGuard<'_, FxHashSet<RequestId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a request came in.
    pub fn asked(&self, id: &RequestId) {
        self.open().insert(id.clone());
    }

    /// Whether a request still waits for its answer.
    pub fn waits(&self, id: &RequestId) -> bool {
        self.open().contains(id)
    }

    /// Answers a request, unless it is answered already.
    pub fn answer(&self, id: &RequestId, result: Result<Value, Refusal>) {
        if !self.open().remove(id) {
            return;
        }
        self.raw(match result {
            Ok(result) => answer(id, &result),
            Err(Refusal(code, why)) => refusal(json!(id), code, &why),
        });
    }

    /// Answers whoever still waits.
    pub fn refuse_all(&self, why: &dyn Fn() -> Refusal) {
        let mut waiting: Vec<RequestId> = self.open().iter().cloned().collect();
        waiting.sort_unstable();
        for id in waiting {
            self.answer(&id, Err(why()));
        }
    }

    pub fn cancel(&self, id: &RequestId) {
        self.answer(id, Err(Refusal(ErrorCode::RequestCanceled, "cancelled by the client".to_string())));
    }

    pub fn notify(&self, method: &str, params: impl Serialize) {
        self.raw(json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Asks the client something whose answer nobody waits for.
    pub fn ask(&self, method: &str, params: impl Serialize) {
        let id = format!("spmd-check-{}", self.next.fetch_add(1, Ordering::Relaxed));
        self.raw(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    pub fn raw(&self, message: Value) {
        // Nobody may be reading any more.
        let _ = self.send.send(message);
    }

    /// A line in the client's log.
    pub fn log(&self, text: &str) {
        self.notify("window/logMessage", json!({ "type": 3, "message": text }));
    }

    pub fn show_error(&self, text: &str) {
        self.notify("window/showMessage", json!({ "type": 1, "message": text }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_is_answered_once() {
        let (send, receive) = std::sync::mpsc::channel();
        let outbox = Outbox::new(send);
        for id in 1..=4 {
            outbox.asked(&RequestId::from(id));
        }
        outbox.answer(&RequestId::from(2), Ok(Value::Null));
        outbox.cancel(&RequestId::from(4));
        outbox.refuse_all(&|| Refusal(ErrorCode::InternalError, "gone".to_string()));
        outbox.answer(&RequestId::from(1), Ok(Value::Null));
        drop(outbox);
        let said: Vec<(Value, Value)> =
            receive.iter().map(|m: Value| (m["id"].clone(), m["error"]["code"].clone())).collect();
        let codes = [(2, Value::Null), (4, json!(-32800)), (1, json!(-32603)), (3, json!(-32603))];
        assert_eq!(said, codes.map(|(id, code)| (json!(id), code)));
    }
}
