-- Run before either set: their goose tables live in the schema as well.
CREATE SCHEMA IF NOT EXISTS crm;
