//! Plays an access log through rules and prints nothing but the totals, to be timed from outside:
//! `time cargo run --release -p tidegate-simulation --example replay_speed -- access.log rules.yaml 'address=$remote_addr'`.

use std::fs::{self, File};
use std::sync::Arc;

use tidegate_engine::{Options, Source, compile};
use tidegate_simulation::replay::{
    ClientModel, DescriptorRecipes, Recording, ReplayOptions, RequestDescriber, replay,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(log), Some(rules), Some(recipe)) =
        (arguments.next(), arguments.next(), arguments.next())
    else {
        return Err("usage: replay_speed LOG RULES DESCRIPTOR".into());
    };
    let rules = compile(&[Source::new(&*rules, fs::read_to_string(&rules)?)], &Options::default())?;
    let domain = rules.domains().next().map(|domain| domain.name().to_owned()).unwrap_or_default();
    let mut recipes = DescriptorRecipes::new(&domain, &[recipe])?;
    let options = ReplayOptions {
        rules: Arc::new(rules),
        against: None,
        describer: Some(&mut recipes as &mut dyn RequestDescriber),
        clients: ClientModel::AsLogged,
        anonymise: false,
        progress: &mut |_| {},
    };
    let report = replay(vec![Recording::new("log", File::open(log)?, None)?], options)?;
    println!("{} requests, {} refused", report.new.requests, report.new.refused);
    Ok(())
}
