//! The life of a connection. In: messages. Out: an answer to each request; work for the thread that checks. Never: checking, so that
//! cancelling and ending work at any time. Next: `worker.rs`.

use super::capabilities::{self, Client};
use super::outbox::{Outbox, Refusal};
use super::transport::{self, Incoming};
use super::worker::{Job, Worker};
use lsp_server::{ErrorCode, Message, Notification, Request, RequestId};
use lsp_types::InitializeParams;
use serde_json::Value;
use std::io::{BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Deep expressions recurse deeply.
const STACK_BYTES: usize = 64 << 20;

/// How long the client may take to read what is left.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why nobody works on a request.
const GONE: &str = "the checking thread is gone";

/// How far the connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    New,
    Running,
    /// The client has said that it will end it.
    Ending,
}

struct Server {
    outbox: Arc<Outbox>,
    phase: Phase,
    client: Option<Client>,
    /// To the thread that checks, once there is one.
    jobs: Option<Sender<Job>>,
    /// Set when a text changes, so that a check of the old one ends.
    stop: Arc<AtomicBool>,
}

/// Serves a client; whether it ended the connection in the right order.
pub fn serve(input: impl Read, output: impl Write + Send + 'static) -> bool {
    let (send, receive) = channel::<Value>();
    let (ended, end) = channel();
    std::thread::spawn(move || {
        let mut output = output;
        // Nothing, as a message, is the last one.
        receive.into_iter().take_while(|message| !message.is_null()).all(|m| transport::write(&mut output, &m));
        ended.send(())
    });
    let outbox = Arc::new(Outbox::new(send));
    let stop = Arc::new(AtomicBool::new(false));
    let mut server = Server { outbox, phase: Phase::New, client: None, jobs: None, stop };
    let mut input = BufReader::with_capacity(1 << 16, input);
    let proper = loop {
        match transport::read(&mut input) {
            Incoming::Closed => break server.phase == Phase::Ending,
            Incoming::Rubbish(answer) => server.outbox.raw(answer),
            Incoming::Message(Message::Request(request)) => server.request(request),
            Incoming::Message(Message::Notification(note)) if note.method == "exit" => {
                break server.phase == Phase::Ending;
            }
            Incoming::Message(Message::Notification(note)) => server.notification(note),
            // Nothing depends on what the client answers.
            Incoming::Message(Message::Response(_)) => {}
        }
    };
    server.stop.store(true, Ordering::Relaxed);
    // A check under way is not waited for: the process ends. A client that does not read is not waited for long.
    server.outbox.raw(Value::Null);
    let _ = end.recv_timeout(LAST_WORDS);
    proper
}

impl Server {
    fn request(&mut self, request: Request) {
        self.outbox.asked(&request.id);
        let refused = |code: ErrorCode, why: &str| Err(Refusal(code, why.to_string()));
        match (self.phase, request.method.as_str()) {
            (Phase::New, "initialize") => self.initialize(request),
            (Phase::New, _) => {
                self.outbox.answer(&request.id, refused(ErrorCode::ServerNotInitialized, "`initialize` comes first"));
            }
            (Phase::Ending, _) => {
                self.outbox.answer(&request.id, refused(ErrorCode::InvalidRequest, "`shutdown` came before"));
            }
            (Phase::Running, "initialize") => {
                self.outbox.answer(&request.id, refused(ErrorCode::InvalidRequest, "`initialize` comes once"));
            }
            (Phase::Running, "shutdown") => {
                self.phase = Phase::Ending;
                self.outbox.answer(&request.id, Ok(Value::Null));
            }
            (Phase::Running, _) => self.job(Job::Request(request)),
        }
    }

    fn initialize(&mut self, request: Request) {
        let params = match serde_json::from_value::<InitializeParams>(request.params) {
            Ok(params) => params,
            Err(error) => {
                self.outbox.answer(&request.id, Err(Refusal(ErrorCode::InvalidParams, error.to_string())));
                return;
            }
        };
        let client = Client::new(&params);
        self.outbox.answer(&request.id, Ok(capabilities::offered(&client)));
        self.phase = Phase::Running;
        self.client = Some(client.clone());
        let (send, receive) = channel();
        let worker = Worker::new(client, &params, self.outbox.clone(), self.stop.clone());
        let outbox = self.outbox.clone();
        let thread = std::thread::Builder::new().name("spmd-check-worker".to_string()).stack_size(STACK_BYTES);
        let ours = outbox.clone();
        let work = move || {
            let ended = catch_unwind(AssertUnwindSafe(|| worker.run(&receive)));
            // From here on whoever asks hears that nobody works; those who asked before hear it now.
            drop(receive);
            if ended.is_err() {
                ours.show_error("spmd-check failed, and checks nothing until it is started again");
                ours.refuse_all(&|| Refusal(ErrorCode::InternalError, GONE.to_string()));
            }
        };
        match thread.spawn(work) {
            Ok(_) => self.jobs = Some(send),
            Err(error) => outbox.show_error(&format!("spmd-check cannot start a thread: {error}")),
        }
    }

    fn notification(&mut self, note: Notification) {
        match note.method.as_str() {
            "$/cancelRequest" => {
                if let Some(id) = cancelled(&note.params) {
                    self.outbox.cancel(&id);
                }
            }
            "initialized" if self.client.as_ref().is_some_and(|client| client.watches_files) => {
                self.outbox.ask("client/registerCapability", capabilities::watched());
            }
            _ if self.phase == Phase::Running => self.job(Job::Notification(note)),
            _ => {}
        }
    }

    fn job(&mut self, job: Job) {
        let changes = matches!(&job, Job::Notification(note) if note.method.ends_with("/didChange"));
        let id = match &job {
            Job::Request(request) => Some(request.id.clone()),
            Job::Notification(_) => None,
        };
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if changes {
            self.stop.store(true, Ordering::Relaxed);
        }
        if let (Some(id), false) = (id, sent) {
            self.outbox.answer(&id, Err(Refusal(ErrorCode::InternalError, GONE.to_string())));
        }
    }
}

fn cancelled(params: &Value) -> Option<RequestId> {
    serde_json::from_value(params.get("id")?.clone()).ok()
}

/// What a request that nobody knows is answered with.
pub fn unknown(method: &str) -> Refusal {
    Refusal(ErrorCode::MethodNotFound, format!("`{method}` is not offered"))
}
