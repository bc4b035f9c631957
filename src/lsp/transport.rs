//! Messages as bytes. In: a stream of headers and JSON. Out: messages, and rubbish as such, with what it can be answered with. Never: an
//! end because a message makes no sense; only the end of the stream ends it. Next: `server.rs`.

use lsp_server::{ErrorCode, Message, RequestId};
use serde_json::{Value, json};
use std::io::{BufRead, Read, Write};

/// The longest message that is read.
const MAX_BYTES: u64 = 1 << 30;

/// What came in.
pub enum Incoming {
    Message(Message),
    /// The answer to something that is no message.
    Rubbish(Value),
    Closed,
}

/// Reads the next message.
pub fn read(input: &mut impl BufRead) -> Incoming {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        match input.by_ref().take(1 << 16).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return Incoming::Closed,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        match (text.is_empty(), length) {
            (true, Some(length)) => return body(input, length),
            (true, None) => continue,
            (false, _) => {}
        }
        let header = text.split_once(':').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()));
        match header {
            Some((name, value)) if name.ends_with("content-length") => match value.parse::<u64>() {
                Ok(n) if n <= MAX_BYTES => length = Some(n),
                _ => {
                    return Incoming::Rubbish(refusal(
                        Value::Null,
                        ErrorCode::ParseError,
                        "a length that is no number",
                    ));
                }
            },
            Some((name, _)) if name.starts_with("content-") => {}
            // Something that is no header: its rest is skipped up to the next one.
            _ if length.is_none() => {
                return Incoming::Rubbish(refusal(
                    Value::Null,
                    ErrorCode::ParseError,
                    "this is no header of a message",
                ));
            }
            _ => {}
        }
    }
}

fn body(input: &mut impl Read, length: u64) -> Incoming {
    let mut bytes = Vec::new();
    match input.take(length).read_to_end(&mut bytes) {
        Ok(n) if n as u64 == length => {}
        _ => return Incoming::Closed,
    }
    let value: Value = match serde_json::from_slice(&bytes) {
        Ok(value) => value,
        Err(error) => {
            return Incoming::Rubbish(refusal(Value::Null, ErrorCode::ParseError, &format!("no JSON: {error}")));
        }
    };
    let id = value.get("id").filter(|id| id.is_number() || id.is_string()).cloned().unwrap_or(Value::Null);
    let is_object = value.is_object();
    // Somebody who gives an id waits for an answer, also where the id is too large or the method no word.
    let asks = value.get("method").is_some() && value.get("id").is_some_and(|id| !id.is_null());
    match serde_json::from_value::<Message>(value) {
        Ok(message) if is_object && asks == matches!(message, Message::Request(_)) => Incoming::Message(message),
        _ => Incoming::Rubbish(refusal(
            id,
            ErrorCode::InvalidRequest,
            "neither a request nor a notification nor an answer",
        )),
    }
}

/// The answer to a request that is not carried out.
pub fn refusal(id: Value, code: ErrorCode, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i32, "message": why } })
}

/// The answer to a request.
pub fn answer(id: &RequestId, result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

/// Writes a message; whether somebody reads.
pub fn write(output: &mut impl Write, message: &Value) -> bool {
    let text = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{text}", text.len()).and_then(|()| output.flush()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut bytes: &[u8]) -> Vec<Option<i64>> {
        let mut out = Vec::new();
        loop {
            match read(&mut bytes) {
                Incoming::Message(_) => out.push(None),
                Incoming::Rubbish(answer) => out.push(answer["error"]["code"].as_i64()),
                Incoming::Closed => return out,
            }
        }
    }

    #[test]
    fn whoever_asks_is_answered() {
        for id in ["3000000000", "-3000000000", "1.5", "1e99", "[1]", "true"] {
            let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"shutdown"}}"#);
            assert_eq!(all(format!("Content-Length: {}\r\n\r\n{text}", text.len()).as_bytes()), [Some(-32600)], "{id}");
        }
        for (text, answer) in [
            (r#"{"id":1,"method":5}"#, Some(-32600)),
            (r#"{"id":1,"method":"shutdown","result":1}"#, None),
            (r#"{"id":1,"result":1}"#, None),
            (r#"{"id":null,"method":"exit"}"#, None),
            (r#"{"method":"exit"}"#, None),
        ] {
            let framed = format!("Content-Length: {}\r\n\r\n{text}", text.len());
            assert_eq!(all(framed.as_bytes()), [answer], "{text}");
        }
    }

    #[test]
    fn rubbish_ends_nothing() {
        let good = r#"{"jsonrpc":"2.0","method":"exit"}"#;
        let framed = |text: &str| format!("Content-Length: {}\r\n\r\n{text}", text.len());
        let text = format!(
            "hello\r\n{}{}{}Content-Length: x\r\n\r\n{}",
            framed("{"),
            framed("[1]"),
            framed(r#"{"jsonrpc":"2.0","id":1}"#),
            framed(good)
        );
        let found = all(text.as_bytes());
        assert_eq!(found.last(), Some(&None), "{found:?}");
        assert!(found[0] == Some(-32700) && found[1] == Some(-32700), "{found:?}");
    }
}
