// Plain ES modules with JSDoc types: TypeScript checks callers against them, and no build is needed.
export { Limiter, RefusedError } from "./limiter.js";
export { HeldError, pacedFetch } from "./pace.js";
