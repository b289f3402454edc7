//! The methods that tonic serves: health and reflection.

use tonic::service::Routes;

use super::health::HealthHandle;
use super::settings::RlsSettings;

/// The file descriptors of the service, for reflection.
const DESCRIPTION: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/rls.bin"));

/// Health, and reflection if the settings enable it. Every other method is answered as unknown.
pub(super) fn routes(health: &HealthHandle, settings: &RlsSettings) -> Routes {
    let routes = Routes::new(health.server());
    let routes = if settings.reflection { with_reflection(routes) } else { routes };
    routes.prepare()
}

fn with_reflection(routes: Routes) -> Routes {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTION)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    // Older clients ask for the alpha version only.
    let (Ok(v1), Ok(v1alpha)) = (builder().build_v1(), builder().build_v1alpha()) else {
        // The descriptors are compiled in; a test checks that they can be read.
        return routes;
    };
    routes.add_service(v1).add_service(v1alpha)
}
