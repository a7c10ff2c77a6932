//! `mainstay instance …`: what runs inside of the pods of a MySQLCluster.

use mainstay_instance::Config;

use crate::cli::{InstanceCommand, InstanceOutput};
use crate::plugin::chain;

/// Carries a command out; what it prints.
pub(crate) async fn run(command: InstanceCommand) -> Result<String, String> {
    match command {
        InstanceCommand::Install { folder } => {
            let installed = mainstay_instance::install(&folder).map_err(|error| chain(&error))?;
            Ok(format!("installed {}\n", installed.display()))
        }
        InstanceCommand::Run => {
            let config = Config::from_env().map_err(|error| chain(&error))?;
            mainstay_instance::run(config).await.map_err(|error| chain(&error))?;
            Ok(String::new())
        }
        InstanceCommand::Backup => {
            let settings = mainstay_instance::backup::Settings::from_env().map_err(|error| chain(&error))?;
            mainstay_instance::backup::run(settings).await?;
            Ok(String::new())
        }
        InstanceCommand::Verify => {
            let settings = mainstay_instance::verify::Settings::from_env().map_err(|error| chain(&error))?;
            mainstay_instance::verify::run(settings).await?;
            Ok(String::new())
        }
        InstanceCommand::PreStop => {
            mainstay_instance::pre_stop().await.map_err(|error| chain(&error))?;
            Ok(String::new())
        }
        InstanceCommand::Status {
            output: InstanceOutput::Json,
        } => {
            let status = mainstay_instance::status_json().await.map_err(|error| chain(&error))?;
            Ok(format!("{status:#}\n"))
        }
    }
}
