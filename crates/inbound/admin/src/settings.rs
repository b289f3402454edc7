//! What the debug door is told, and whom it asks.

use std::fmt;
use std::sync::Arc;

use super::change::Change;
use super::delivery::DeliveryReading;
use super::limiters::Switchboard;
use super::observations::Observations;
use super::token::Token;
use tidegate_metrics::{Collector, Meter};

/// How the debug door behaves.
#[derive(Clone, Debug)]
pub struct DebugSettings {
    /// The secret that changes ask for, and that pages about callers ask for. Default: none.
    pub token: Option<Token>,
    /// Whether changes are allowed when there is no token. Only for doors that
    /// nobody but this machine reaches. Default: no.
    pub changes_without_token: bool,
    /// Whether statistics have the names of envoyproxy/ratelimit. Default: no.
    pub compat: bool,
    /// The most rules with metrics of their own; later ones are summed. Default: 10,000.
    pub rules_max: usize,
}

impl Default for DebugSettings {
    fn default() -> Self {
        DebugSettings {
            token: None,
            changes_without_token: false,
            compat: false,
            rules_max: 10_000,
        }
    }
}

/// What is logged, and how to change it.
pub trait LogLevel: Send + Sync {
    /// What is logged now, in words that `set` takes.
    fn get(&self) -> String;

    /// Changes what is logged.
    ///
    /// # Errors
    /// When nothing is called that; says what would be right.
    fn set(&self, level: &str) -> Result<(), String>;
}

type Ask<T> = Box<dyn Fn() -> T + Send + Sync>;
type Tell<T> = Box<dyn Fn(&T) + Send + Sync>;

/// Whom the door asks. What is not given is not shown.
#[derive(Default)]
pub struct DebugParts {
    /// How the door behaves.
    pub settings: DebugSettings,
    /// The version of the program.
    pub version: &'static str,
    /// What is remembered of verdicts.
    pub observations: Arc<Observations>,
    /// The requests of each door.
    pub meters: Vec<Arc<Meter>>,
    /// What is logged.
    pub log_level: Option<Box<dyn LogLevel>>,
    /// How the delivery of rules goes.
    pub rules: Option<Ask<DeliveryReading>>,
    /// Asks for the rules, and the gateway's document, to be read again. Must not wait for it.
    pub reload: Option<Ask<()>>,
    /// How often a shadow mode of the whole service changed an answer.
    pub globally_shadowed: Option<Ask<u64>>,
    /// Switches the limiters. Without it the door switches those of its engine.
    pub switchboard: Option<Arc<Switchboard>>,
    /// The delivery of the gateway's document.
    pub gateway_document: Option<Ask<DeliveryReading>>,
    /// Renders the page `/gateway` as JSON. Without it there is no such page.
    pub gateway_page: Option<Ask<String>>,
    /// Parts of the program with metrics beside those of the engine, the doors and the limiters.
    pub collectors: Vec<Arc<dyn Collector>>,
    /// Is told of every change, to log it.
    pub on_change: Option<Tell<Change>>,
}

impl fmt::Debug for DebugParts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("DebugParts").field("settings", &self.settings).finish_non_exhaustive()
    }
}
