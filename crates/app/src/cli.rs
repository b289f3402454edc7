//! The arguments. The comments on the fields are the help texts.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tidegate_simulation::OverloadArguments;

use crate::config::ConfigArgs;
use crate::control::ControlCommand;
use crate::demo::flood::FloodArgs;
use crate::demo::forward::ForwardDemoArgs;
use crate::demo::throttled::ThrottledArgs;
use crate::demo_api::DemoApiArgs;
use crate::explain::ExplainRequestArgs;
use crate::forward::ForwardCommand;
use crate::guard::GuardArgs;
use crate::output::ColorWhen;
use crate::rules::export::ExportArgs;
use crate::rules::load::DEFAULT_PATH;
use crate::rules::report::ReportArgs;
use crate::serve::ServeArgs;
use crate::simulate::traffic::TrafficArgs;
use crate::snapshot::SnapshotCommand;
#[cfg(feature = "top")]
use crate::top::TopArgs;
use crate::version;

/// Keeps a service alive and fair under load: rate limits, concurrency limits
/// and load shedding by rules.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = version::text(), after_help = TOP_EXAMPLES)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Cli {
    /// When to use colours.
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t)]
    pub(crate) color: ColorWhen,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const TOP_EXAMPLES: &str = "\
Examples:
  tidegate demo                          try limits at a prompt, nothing to set up
  tidegate rules check rules/            see whether rule files are right
  tidegate rules explain user=ada        see which rule a request meets, and why
  tidegate rules schema > schema.json    let your editor complete rule files
  tidegate top                           watch a running server
  tidegate forward status                watch a running forwarder
  tidegate config show                   see what is in force, and why

Exit codes: 0 all is well, 1 the rules or the configuration have problems, 2 the command or its input is unusable.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Check, explain and describe rule files.
    #[command(after_help = RULES_EXAMPLES)]
    Rules {
        #[command(subcommand)]
        command: RulesCommand,
    },
    /// Check, show and describe the configuration of the service.
    #[command(after_help = CONFIG_EXAMPLES)]
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Make API keys for the gateway.
    #[command(after_help = KEYS_EXAMPLES)]
    Keys {
        #[command(subcommand)]
        command: KeysCommand,
    },
    /// Look at the snapshot files of a control plane, offline.
    #[command(after_help = SNAPSHOT_EXAMPLES)]
    Snapshot {
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Serve decisions: Envoy's rate limit service, an HTTP API, a gateway, metrics.
    ///
    /// Without a configuration file: the rules in `rules/`, gRPC on port 8081, HTTP
    /// on 8080, metrics and switches on 6070 for this machine only; with a document for
    /// it, the gateway on 8000. Rules are read
    /// again when they change. SIGTERM lets requests finish, SIGHUP reads the
    /// rules at once.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Keep limits of many clients in a database, and publish them as signed files on a beat.
    ///
    /// docs/control-plane.md explains how the parts work together.
    #[command(after_help = CONTROL_EXAMPLES)]
    Control {
        #[command(subcommand)]
        command: ControlCommand,
    },
    /// Send records at the pace that throttled services allow: a durable queue, shared capacity, forecasts.
    #[command(after_help = FORWARD_EXAMPLES)]
    Forward {
        #[command(subcommand)]
        command: ForwardCommand,
    },
    /// Hand the server's list of networks that flood to nftables.
    ///
    /// A process of its own with CAP_NET_ADMIN, as the user of the server. It replaces the whole list when it changes,
    /// and renews it; entries time out within 90 seconds, so that everybody gets in again when it or the server ends.
    #[command(after_help = GUARD_EXAMPLES)]
    Guard(GuardArgs),
    /// Say what would happen to an HTTP request: route, descriptors, limits, what is left.
    ///
    /// Asks a running server with `--server`, or reads the gateway's document and the rules from
    /// files. Nothing is charged and nothing is sent.
    #[command(after_help = EXPLAIN_REQUEST_EXAMPLES)]
    Explain(ExplainRequestArgs),
    /// Watch running servers in the terminal: rates, limits, refused callers.
    ///
    /// Reads their debug ports once a second. Tab chooses a server, q ends it.
    #[cfg(feature = "top")]
    #[command(after_help = TOP_COMMAND_EXAMPLES)]
    Top(TopArgs),
    /// Try rules at a prompt: type requests, see what is admitted.
    ///
    /// Everything runs in this process and is gone when it ends. `wait` skips
    /// time instead of sleeping. Commands can come from a pipe too; time then
    /// stands still but for `wait`, so that a script always gives the same answers.
    #[command(after_help = DEMO_EXAMPLES)]
    Demo(DemoArgs),
    /// Serve a small API that is slow, to try the gateway in front of it.
    ///
    /// It works on a few requests at once; all others wait, however many there are. `/health`
    /// answers at once.
    #[command(after_help = DEMO_API_EXAMPLES)]
    DemoApi(DemoApiArgs),
    /// Play load and recorded traffic against limiters in virtual time.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate {
        #[command(subcommand)]
        command: SimulateCommand,
    },
    /// Print a completion script for a shell.
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Print the version.
    #[command(after_help = VERSION_EXAMPLES)]
    Version,
}

/// What can be done with API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Print a new key, its hash, and the line for the file of keys.
    ///
    /// Only the owner needs the key, and it cannot be shown again. Add the line to the file that
    /// `api_keys.file` of the gateway's document names; the running gateway reads it again.
    #[command(after_help = KEYS_EXAMPLES)]
    New {
        /// The name of the owner, one word.
        name: String,
        /// The owner's plan, one word.
        plan: String,
    },
}

/// What can be simulated.
#[derive(Debug, Subcommand)]
pub(crate) enum SimulateCommand {
    /// Overload a server, protected by our shedders and by those of others, and compare them.
    ///
    /// Everything follows from the seeds. What the tables say, and how they were made, is in
    /// docs/overload.md.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Overload(OverloadArguments),
    /// Play recorded traffic through rules: what they would refuse, and what changes.
    ///
    /// Reads logs of nginx, Apache and Envoy, the gateway's access log and the decision log. With
    /// `--against`, every request is decided by both sets of rules. docs/replay.md says what each
    /// log can tell.
    #[command(after_help = TRAFFIC_EXAMPLES)]
    Traffic(TrafficArgs),
}

const TRAFFIC_EXAMPLES: &str = "\
Examples:
  tidegate simulate traffic --log access.log --rules new/ --describe 'address=$remote_addr'
  tidegate simulate traffic --log decisions.jsonl --rules new/ --against rules/ --out report/
  tidegate simulate traffic --log access.log.gz --rules new/ --describe 'user=$remote_user' \\
      --fail-if 'refused > 1%' --fail-if 'unreadable > 0'

Exit codes: 0 here is the report, 1 a condition of --fail-if holds or the rules have problems, 2 unusable input.";

const SIMULATE_EXAMPLES: &str = "\
Examples:
  tidegate simulate overload --seeds 3
  tidegate simulate traffic --log decisions.jsonl --rules new/ --against rules/
  tidegate simulate overload --scenario step --factor 3 --contenders all --out charts/
  tidegate simulate overload --format json > overload.json";

const RULES_EXAMPLES: &str = "\
Examples:
  tidegate rules check rules/
  tidegate rules explain --rules rules/ --domain shop user=ada path=/login
  tidegate rules schema";

const CONFIG_EXAMPLES: &str = "\
Examples:
  tidegate config check
  tidegate config show --compat
  tidegate config schema";

const KEYS_EXAMPLES: &str = "\
Examples:
  tidegate keys new acme pro
  tidegate keys new acme pro | sed -n 's/^line: //p' >> keys.txt    keep the line, forget the key";

const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  tidegate snapshot inspect /srv/snapshots/main/all/snapshot
  tidegate snapshot verify snapshot --join join.json
  tidegate snapshot lookup snapshot --domain api --table clients acme";

const SERVE_EXAMPLES: &str = "\
Examples:
  tidegate serve --rules rules/
  tidegate serve --config tidegate.yaml --log-level debug
  tidegate serve --rules rules/ --gateway gateway.yaml
  tidegate serve --control join.json --set data_dir=/var/lib/tidegate
  tidegate serve --rules shop.yaml --grpc unix:/run/tidegate.sock --http 127.0.0.1:8080
  RUNTIME_ROOT=/srv/runtime/current tidegate serve --compat

`tidegate config show` says what is in effect, and why.
Exit codes: 0 stopped, 1 configuration or rules have problems, 2 it could not start.";

const CONTROL_EXAMPLES: &str = "\
Examples:
  tidegate control init --data-dir control --token-file admin.token
  tidegate control serve --data-dir control
  tidegate control apply rules/ --why 'the first rules' --token-file admin.token
  tidegate control override set api/clients acme rate=500 --token-file admin.token";

const FORWARD_EXAMPLES: &str = "\
Examples:
  tidegate forward plan --forward forward.yaml --type records --records 10000 --cost 10
  tidegate forward serve --forward forward.yaml --set data_dir=/var/lib/tidegate
  tidegate forward enqueue records.ndjson --type records --job import --follow
  tidegate forward status --watch

docs/forwarder.md explains how the parts work together.";

const GUARD_EXAMPLES: &str = "\
Examples:
  tidegate guard
  tidegate guard --socket /run/tidegate/floods.sock
  tidegate guard --print --once          what would be handed to nftables; needs no rights

Exit codes: 0 ended after a list (with --once), 2 there is no list or nftables refused it (with --once).";

const EXPLAIN_REQUEST_EXAMPLES: &str = "\
Examples:
  tidegate explain --server localhost:6070 --request 'GET /orders' -H 'X-User: ada'
  tidegate explain --gateway gateway.yaml --rules rules/ --request 'POST /orders' --client 203.0.113.7
  tidegate explain --server debug.internal:6070 --token-file token --request /orders --format json";

#[cfg(feature = "top")]
const TOP_COMMAND_EXAMPLES: &str = "\
Examples:
  tidegate top
  tidegate top node-1:6070 node-2:6070 --token-file token
  tidegate top --once

Exit codes: 0 every server answered, 1 one did not (with --once), 2 the command is unusable.";

const DEMO_EXAMPLES: &str = "\
Examples:
  tidegate demo
  tidegate demo --rules rules/ --domain shop
  tidegate demo --print-rules > rules.yaml
  tidegate demo flood                    flood the gateway of `make run`, and watch
  tidegate demo forward                  import records at the pace of a throttled service
  printf 'user=ada x12\\nwait 1s\\nuser=ada\\n' | tidegate demo

At the prompt, `help` lists the commands.";

const DEMO_API_EXAMPLES: &str = "\
Examples:
  tidegate demo-api
  tidegate demo-api --listen 127.0.0.1:9100 --capacity 4 --work 250
  curl 'localhost:9000/anything?ms=500'";

const COMPLETIONS_EXAMPLES: &str = "\
Examples:
  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish";

const VERSION_EXAMPLES: &str = "\
Examples:
  tidegate version
  tidegate --version";

#[derive(Debug, Subcommand)]
pub(crate) enum RulesCommand {
    /// Say everything that is wrong with rule files, at once.
    ///
    /// Every problem comes with its file, line and column, the line itself and
    /// what would be right. Warnings are shown; the rules can still be used.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Say which rule a request meets, and why.
    ///
    /// Shows what was tried at each level, the limits of the rule in words and
    /// what its counters are kept by. Where nothing matches, says where
    /// matching stopped and what would have matched.
    #[command(after_help = EXPLAIN_EXAMPLES)]
    Explain(ExplainArgs),
    /// Write the rules that the kernel's packet filter can express, for nftables or iptables.
    ///
    /// Only limits by address, on connections instead of requests. Everything else is named in
    /// comments with the reason. Nothing is changed without `--apply`; docs/floods.md explains the result.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(ExportArgs),
    /// Say what traffic shows about each limit: too strict, idle, bursty callers and more.
    ///
    /// Each finding has its numbers, a confidence, a suggested change of the rules (in shadow) and the
    /// command that tries it. docs/findings.md explains every kind.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Print the JSON Schema of rule files, for editors and other tools.
    #[command(after_help = SCHEMA_EXAMPLES)]
    Schema,
}

/// How to write the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs: one JSON document.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Rule files, directories that hold some, or `-` for standard input.
    #[arg(value_name = "PATH", env = "TIDEGATE_RULES", default_value = DEFAULT_PATH)]
    pub(crate) paths: Vec<PathBuf>,
    /// Take warnings for errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// Refuse a second file for a domain, as envoyproxy/ratelimit does.
    #[arg(long)]
    pub(crate) no_merge_domains: bool,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  tidegate rules check rules/
  tidegate rules check api.yaml shop.yaml --deny-warnings
  tidegate rules check --format json rules/ | jq '.problems[].message'
  helm template . | tidegate rules check -

Exit codes: 0 the rules are right, 1 they have problems, 2 they cannot be read.";

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// A rule file, a directory that holds some, or `-` for standard input;
    /// can be given several times.
    #[arg(long, value_name = "PATH", env = "TIDEGATE_RULES", default_value = DEFAULT_PATH)]
    pub(crate) rules: Vec<PathBuf>,
    /// The domain; not needed when the rules have only one.
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// A whole descriptor; can be given several times. Where a value has a
    /// comma in it, give the entries as arguments instead.
    #[arg(long, value_name = "KEY=VALUE,…", conflicts_with_all = ["entries", "more"])]
    pub(crate) descriptor: Vec<String>,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// The entries of the request's descriptor, in order.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) entries: Vec<String>,
    /// The next descriptors of the same request, each after `--`.
    #[arg(last = true, value_name = "KEY=VALUE")]
    pub(crate) more: Vec<String>,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  tidegate rules explain user=ada path=/login
  tidegate rules explain --rules shop.yaml --domain shop ip=10.1.2.3
  tidegate rules explain user=ada -- ip=10.1.2.3
  tidegate rules explain --descriptor user=ada,path=/login --descriptor ip=10.1.2.3
  tidegate rules explain --format json user=ada

Exit codes: 0 here is the answer, 1 the rules have problems, 2 the question is unusable.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  tidegate rules export nftables --rules rules/ --port 443
  tidegate rules export nftables --rules rules/ --port 443 --check
  tidegate rules export iptables --rules rules/ --port 443 --connections-per-request 0.5 > tidegate.v4

Exit codes: 0 here it is, 1 the rules have problems, 2 the packet filter or the question is unusable.";

const REPORT_EXAMPLES: &str = "\
Examples:
  tidegate rules report --log decisions.jsonl --rules rules/
  tidegate rules report --log access.log --rules rules/ --describe 'address=$remote_addr' --format markdown
  tidegate rules report --from localhost:6070                                      # a running server
  tidegate rules report --history evidence.json --deny too_strict,never_matched    # for CI

Exit codes: 0 here is the report, 1 a denied finding or problems in the rules, 2 the input is unusable.";

const SCHEMA_EXAMPLES: &str = "\
Examples:
  tidegate rules schema > tidegate.schema.json

In an editor with a YAML language server, the first line of a rule file:
  # yaml-language-server: $schema=tidegate.schema.json";

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Say everything that is wrong with the configuration, at once.
    ///
    /// Checks what would be in force here: the file, the environment and flags.
    /// Every problem comes with its place, the line itself and what would be right.
    #[command(after_help = CONFIG_CHECK_EXAMPLES)]
    Check(ConfigCheckArgs),
    /// Show what is in force, and where each value comes from.
    #[command(after_help = CONFIG_SHOW_EXAMPLES)]
    Show(ConfigShowArgs),
    /// Print the JSON Schema of the configuration file, or of the gateway's or the forwarder's
    /// document, for editors and other tools.
    #[command(after_help = CONFIG_SCHEMA_EXAMPLES)]
    Schema {
        /// Of which file.
        #[arg(value_enum, default_value_t)]
        of: SchemaOf,
    },
    /// List the environment variables, and what they set.
    #[command(after_help = CONFIG_ENV_EXAMPLES)]
    Env,
    /// Print the reference: all fields, or all variables of envoyproxy/ratelimit.
    #[command(after_help = CONFIG_REFERENCE_EXAMPLES)]
    Reference {
        /// Which document.
        #[arg(value_enum, default_value_t)]
        part: ReferencePart,
    },
}

/// A file with a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemaOf {
    /// The configuration.
    #[default]
    Config,
    /// The gateway's document.
    Gateway,
    /// The forwarder's document.
    Forward,
}

/// A document that is made from the declaration of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReferencePart {
    /// All fields.
    #[default]
    Fields,
    /// All environment variables of envoyproxy/ratelimit.
    Compat,
    /// A file with every field as a comment.
    Example,
    /// All keys of the gateway's document.
    Gateway,
    /// All keys of the forwarder's document.
    Forward,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigCheckArgs {
    /// Say too what of this machine is too small: queues, open files, connection tracking, ports.
    #[arg(long)]
    pub(crate) host: bool,
    /// The configuration file, or `-` for standard input; the same as `--config`.
    #[arg(value_name = "PATH", conflicts_with = "config")]
    pub(crate) path: Option<PathBuf>,
    /// Take warnings for errors.
    #[arg(long)]
    pub(crate) deny_warnings: bool,
    /// How to write the answer.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    #[command(flatten)]
    pub(crate) layers: ConfigArgs,
}

const CONFIG_CHECK_EXAMPLES: &str = "\
Examples:
  tidegate config check
  tidegate config check tidegate.yaml --set shutdown.grace=30s
  tidegate config check --host             # is this machine large enough?
  tidegate config check --deny-warnings    # for CI: a gateway that limits nothing fails
  tidegate config check --format json | jq '.problems[].message'

Exit codes: 0 the configuration is right, 1 it has problems, 2 it cannot be read.";

/// How to write what is in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowFormat {
    /// For people: a table.
    #[default]
    Text,
    /// For programs: a list of fields.
    Json,
    /// A file that has the same effect, without secrets.
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct ConfigShowArgs {
    /// How to write it.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: ShowFormat,
    #[command(flatten)]
    pub(crate) layers: ConfigArgs,
}

const CONFIG_SHOW_EXAMPLES: &str = "\
Examples:
  tidegate config show
  tidegate config show --compat --format yaml > tidegate.yaml
  tidegate config show --format json | jq '.[] | select(.origin != \"default\")'

Exit codes: 0 here it is, 1 the configuration has problems, 2 it cannot be read.";

const CONFIG_SCHEMA_EXAMPLES: &str = "\
Examples:
  tidegate config schema > tidegate.schema.json
  tidegate config schema gateway > gateway.schema.json
  tidegate config schema forward > forward.schema.json

In an editor with a YAML language server, the first line of the file:
  # yaml-language-server: $schema=tidegate.schema.json";

const CONFIG_ENV_EXAMPLES: &str = "\
Examples:
  tidegate config env
  tidegate config env | grep TLS";

const CONFIG_REFERENCE_EXAMPLES: &str = "\
Examples:
  tidegate config reference
  tidegate config reference compat
  tidegate config reference gateway
  tidegate config reference forward
  tidegate config reference example > tidegate.yaml";

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DemoArgs {
    #[command(subcommand)]
    pub(crate) command: Option<DemoCommand>,
    /// A rule file or a directory that holds some, instead of the built-in
    /// rules; can be given several times.
    #[arg(long, value_name = "PATH")]
    pub(crate) rules: Vec<PathBuf>,
    /// The domain of the requests. Default: the first one of the rules.
    #[arg(long)]
    pub(crate) domain: Option<String>,
    /// Print the built-in rules and end.
    #[arg(long, conflicts_with_all = ["rules", "domain"])]
    pub(crate) print_rules: bool,
}

/// Demos beside the prompt.
#[derive(Debug, Subcommand)]
pub(crate) enum DemoCommand {
    /// Flood the gateway of `make run`, and watch who is served.
    ///
    /// Critical requests and two users send all the time; in the middle tests send far more than the API can carry.
    #[command(after_help = DEMO_FLOOD_EXAMPLES)]
    Flood(FloodArgs),
    /// Import 10,000 records at the pace of a throttled service, beside a naive client.
    ///
    /// Starts a service that accepts 20,000 units in any second and the real `tidegate forward serve` with a queue on
    /// disk, and imports records of 10 units. Interrupted and started again, it continues with what was stored.
    #[command(after_help = DEMO_FORWARD_EXAMPLES)]
    Forward(ForwardDemoArgs),
    /// Serve a throttled API, to try the forwarder against. Prints what arrived when it ends.
    #[command(after_help = DEMO_THROTTLED_EXAMPLES)]
    Throttled(ThrottledArgs),
}

const DEMO_FORWARD_EXAMPLES: &str = "\
Examples:
  tidegate demo forward
  tidegate demo forward --kill                          kill the forwarder in the middle
  tidegate demo forward --records 1000 --limit 1000

Exit codes: 0 every record was delivered, 1 some were not, 2 it could not run.";

const DEMO_THROTTLED_EXAMPLES: &str = "\
Examples:
  tidegate demo throttled
  tidegate demo throttled --listen 127.0.0.1:9300 --limit operations=20/1s --limit bytes=2MiB/1m --latency 20ms
  curl -i -X POST -H 'X-Units: 10' localhost:9200/anything";

const DEMO_FLOOD_EXAMPLES: &str = "\
Examples:
  tidegate demo flood
  tidegate demo flood --gateway localhost:8000 --seconds 10";

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_teaches_by_example() {
        fn look(command: &clap::Command) {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  tidegate"), "{}", command.get_name());
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }

    #[test]
    fn descriptors_after_the_first_stay_apart() {
        let typed = ["tidegate", "rules", "explain", "a=1", "b=2", "--", "c=3", "--", "d=4"];
        let Command::Rules { command: RulesCommand::Explain(args) } =
            Cli::try_parse_from(typed).unwrap().command
        else {
            panic!("another command");
        };
        assert_eq!(args.entries, ["a=1", "b=2"]);
        assert_eq!(args.more, ["c=3", "--", "d=4"]);
    }
}
