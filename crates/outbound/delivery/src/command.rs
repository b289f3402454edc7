//! Runs a command for each record.
//!
//! The command gets one JSON document on its standard input and answers with its exit code:
//!
//! | Exit code | Outcome |
//! |---|---|
//! | 0 | delivered |
//! | 65 (`EX_DATAERR`) | rejected |
//! | 75 (`EX_TEMPFAIL`) | throttled |
//! | any other, or a signal | failed |
//! | none within the time | ambiguous; the command and its children are killed |
//!
//! Its standard output is the response; the end of its standard error is the reason.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::processor::{
    Attempt, AttemptOutcome, AttemptResult, KeptResponse, Processor, ProcessorFuture,
};
use crate::real_cost::CostSource;

const EXIT_DATA_ERROR: i32 = 65;
const EXIT_TEMPORARY_FAILURE: i32 = 75;

/// Bytes of the standard output that are read; the rest is discarded.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Bytes of the standard error that become the reason.
const REASON_BYTES_MAX: usize = 500;

/// Which command runs, and how.
#[derive(Clone, Debug)]
pub struct CommandSettings {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its environment: nothing else is passed on, except `PATH` if it is listed here.
    pub environment: Vec<(OsString, OsString)>,
    /// The directory in which it runs; that of this process if not set.
    pub directory: Option<PathBuf>,
    /// The time that it may take.
    pub timeout: Duration,
    /// Where its output says what the record cost.
    pub real_cost: CostSource,
    /// The bytes of its output that are kept as the response; 0 keeps none.
    pub kept_bytes_max: usize,
}

impl CommandSettings {
    /// A command without arguments, with half a minute.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        CommandSettings {
            program: program.into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
            timeout: Duration::from_secs(30),
            real_cost: CostSource::None,
            kept_bytes_max: 0,
        }
    }
}

/// Runs a command for each record.
#[derive(Clone, Debug)]
pub struct CommandProcessor {
    settings: CommandSettings,
}

/// Kills a process group when it is dropped, unless its leader has ended.
struct GroupGuard(Option<Pid>);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

impl CommandProcessor {
    /// A processor that runs this command.
    pub const fn new(settings: CommandSettings) -> Self {
        CommandProcessor { settings }
    }

    async fn run(&self, attempt: &Attempt) -> AttemptResult {
        let mut child = match self.spawn() {
            Ok(child) => child,
            Err(error) => {
                let program = self.settings.program.display();
                let detail = format!("cannot start {program}: {error}");
                return AttemptResult::new(AttemptOutcome::Failed { detail });
            }
        };
        // The group outlives its leader if the command left children behind; all are killed.
        let _group = GroupGuard(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
        let input = encode(attempt);
        match timeout(self.settings.timeout, converse(&mut child, &input)).await {
            Ok(Ok((status, output, reason))) => self.judge(status, output, &reason),
            Ok(Err(error)) => {
                let detail = format!("the command cannot be watched: {error}");
                AttemptResult::new(AttemptOutcome::Ambiguous { detail })
            }
            Err(_) => {
                let millis = self.settings.timeout.as_millis();
                let detail = format!("the command did not end within {millis} ms and was killed");
                AttemptResult::new(AttemptOutcome::Ambiguous { detail })
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        let settings = &self.settings;
        let mut command = Command::new(&settings.program);
        command
            .args(&settings.arguments)
            .env_clear()
            .envs(settings.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if let Some(directory) = &settings.directory {
            command.current_dir(directory);
        }
        command.spawn()
    }

    fn judge(&self, status: ExitStatus, output: Vec<u8>, reason: &[u8]) -> AttemptResult {
        let settings = &self.settings;
        let said: String = String::from_utf8_lossy(reason)
            .chars()
            .map(|char| if char.is_control() { ' ' } else { char })
            .collect();
        let detail = match said.trim() {
            "" => format!("the command ended with {status}"),
            said => format!("the command ended with {status}: {said}"),
        };
        let outcome = match status.code() {
            Some(0) => AttemptOutcome::Delivered,
            Some(EXIT_DATA_ERROR) => AttemptOutcome::Rejected { detail },
            Some(EXIT_TEMPORARY_FAILURE) => AttemptOutcome::Throttled { hold: None },
            _ => AttemptOutcome::Failed { detail },
        };
        let real_cost = settings.real_cost.read(&http::HeaderMap::new(), &output);
        let code = status.code().and_then(|code| u16::try_from(code).ok());
        let response = (settings.kept_bytes_max > 0).then(|| {
            let truncated = output.len() > settings.kept_bytes_max;
            let mut body = output;
            body.truncate(settings.kept_bytes_max);
            let status = code.unwrap_or(u16::MAX);
            KeptResponse { status, headers: Vec::new(), body: Bytes::from(body), truncated }
        });
        AttemptResult { outcome, real_cost, response }
    }
}

impl Processor for CommandProcessor {
    fn process<'a>(&'a self, batch: &'a [Attempt]) -> ProcessorFuture<'a> {
        Box::pin(async move {
            let mut results = Vec::with_capacity(batch.len());
            for attempt in batch {
                results.push(self.run(attempt).await);
            }
            results
        })
    }
}

/// Writes the input, and reads both outputs until the command ends.
async fn converse(
    child: &mut Child,
    input: &[u8],
) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input may end before it is written.
            let _ = stdin.write_all(input).await;
        }
    };
    let (status, output, reason, ()) = tokio::join!(
        child.wait(),
        read_some(stdout, OUTPUT_BYTES_MAX),
        read_some(stderr, REASON_BYTES_MAX),
        write,
    );
    Ok((status?, output, reason))
}

/// Reads to the end and keeps the beginning.
async fn read_some(stream: Option<impl AsyncRead + Unpin>, max: usize) -> Vec<u8> {
    let Some(mut stream) = stream else { return Vec::new() };
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read) = stream.read(&mut buffer).await {
        if read == 0 {
            break;
        }
        let room = max.saturating_sub(kept.len());
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    kept
}

/// The document on the standard input: a body that is text as `body`, any other as `body_base64`.
fn encode(attempt: &Attempt) -> Vec<u8> {
    let record = &attempt.record;
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let fields = record.payload.headers.iter();
    let fields: Vec<Value> = fields.map(|(name, value)| json!([name, text(value)])).collect();
    let mut document = Map::new();
    document.insert("id".to_owned(), record.id.to_string().into());
    document.insert("attempt".to_owned(), attempt.number.into());
    document.insert("tenant".to_owned(), record.tenant.clone().into());
    document.insert("class".to_owned(), record.class.name().into());
    document.insert("cost".to_owned(), record.cost.into());
    document.insert("headers".to_owned(), fields.into());
    match std::str::from_utf8(&record.payload.body) {
        Ok(body) => document.insert("body".to_owned(), body.into()),
        Err(_) => {
            let encoded = STANDARD.encode(&record.payload.body);
            document.insert("body_base64".to_owned(), encoded.into())
        }
    };
    if let Some(slot) = attempt.slot {
        document.insert("slot".to_owned(), slot.to_string().into());
    }
    let mut bytes = Value::Object(document).to_string().into_bytes();
    bytes.push(b'\n');
    bytes
}
