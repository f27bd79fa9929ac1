"""Keys of brokers: encryption, authentication, authorization."""

SECURITY = """
allow.everyone.if.no.acl.found BOOLEAN ro? low null | Whether Kafka's authorizer lets everybody use what no ACL is about. | refused unless true
authorizer.class.name STRING ro low "" | Class of the authorizer; empty for none. | refused unless default
delegation.token.expiry.check.interval.ms LONG ro low 3600000 1.. | How often delegation tokens are checked for expiry. | refused unless default
delegation.token.expiry.time.ms LONG ro medium 86400000 1.. | A delegation token must be renewed within this time. | refused unless default
delegation.token.max.lifetime.ms LONG ro medium 604800000 1.. | Longest life of a delegation token. | refused unless default
delegation.token.secret.key PASSWORD ro medium null | Secret by which brokers sign delegation tokens. | refused unless default
principal.builder.class CLASS per-broker medium org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder | Java class that makes a principal of a connection. | refused unless default
sasl.client.callback.handler.class CLASS ro medium null | Java class behind SASL of connections that the broker opens.
sasl.enabled.mechanisms LIST per-broker medium GSSAPI | SASL mechanisms that clients may use.
sasl.jaas.config PASSWORD per-broker medium null | Login of a SASL mechanism, in JAAS form.
sasl.kerberos.kinit.cmd STRING per-broker medium /usr/bin/kinit | Command that gets a Kerberos ticket.
sasl.kerberos.min.time.before.relogin LONG per-broker medium 60000 | Pause between two Kerberos logins.
sasl.kerberos.principal.to.local.rules LIST per-broker medium DEFAULT | Rules that make short names of Kerberos principals.
sasl.kerberos.service.name STRING per-broker medium null | Kerberos name under which brokers run.
sasl.kerberos.ticket.renew.jitter DOUBLE per-broker medium 0.05 | Random part of a Kerberos ticket's renewal time.
sasl.kerberos.ticket.renew.window.factor DOUBLE per-broker medium 0.8 | Share of a Kerberos ticket's life after which it is renewed.
sasl.login.callback.handler.class CLASS ro medium null | Java class behind the login of a SASL mechanism.
sasl.login.class CLASS ro medium null | Java class that carries out the login of a SASL mechanism.
sasl.login.connect.timeout.ms INT ro low null | Time to connect to an OAuth server.
sasl.login.read.timeout.ms INT ro low null | Time to read from an OAuth server.
sasl.login.refresh.buffer.seconds SHORT per-broker medium 300 | Time before expiry at which an OAuth token is renewed at the latest.
sasl.login.refresh.min.period.seconds SHORT per-broker medium 60 | Least time between two renewals of an OAuth token.
sasl.login.refresh.window.factor DOUBLE per-broker medium 0.8 | Share of an OAuth token's life after which it is renewed.
sasl.login.refresh.window.jitter DOUBLE per-broker medium 0.05 | Random part of an OAuth token's renewal time.
sasl.login.retry.backoff.max.ms LONG ro low 10000 | Longest pause between attempts to log in at an OAuth server.
sasl.login.retry.backoff.ms LONG ro low 100 | First pause between attempts to log in at an OAuth server.
sasl.mechanism.controller.protocol STRING ro high GSSAPI | SASL mechanism towards Kafka's controllers.
sasl.mechanism.inter.broker.protocol STRING per-broker medium GSSAPI | SASL mechanism between brokers.
sasl.oauthbearer.allow.unverified.audience BOOLEAN ro medium false | Whether tokens are taken whatever their audience.
sasl.oauthbearer.allow.unverified.issuer BOOLEAN ro medium false | Whether tokens are taken whatever their issuer.
sasl.oauthbearer.assertion.algorithm STRING ro medium RS256 {ES256,RS256}i | Algorithm that signs an OAuth assertion.
sasl.oauthbearer.assertion.claim.aud STRING ro medium null | Audience claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.exp.seconds INT ro low 300 0..86400 | Life of an OAuth assertion.
sasl.oauthbearer.assertion.claim.iss STRING ro medium null | Issuer claim of an OAuth assertion.
sasl.oauthbearer.assertion.claim.jti.include BOOLEAN ro medium false | Whether an OAuth assertion gets a unique id.
sasl.oauthbearer.assertion.claim.nbf.seconds INT ro low 60 0..3600 | How far an OAuth assertion is valid into the past.
sasl.oauthbearer.assertion.claim.sub STRING ro medium null | Subject claim of an OAuth assertion.
sasl.oauthbearer.assertion.file STRING ro medium null | File with a finished OAuth assertion.
sasl.oauthbearer.assertion.private.key.file STRING ro medium null | File with the key that signs OAuth assertions.
sasl.oauthbearer.assertion.private.key.passphrase PASSWORD ro medium null | Passphrase of that key.
sasl.oauthbearer.assertion.template.file STRING ro medium null | File with headers and claims that OAuth assertions begin from.
sasl.oauthbearer.client.credentials.client.id STRING ro medium null | Client id towards an OAuth server.
sasl.oauthbearer.client.credentials.client.secret PASSWORD ro medium null | Client secret towards an OAuth server.
sasl.oauthbearer.clock.skew.seconds INT ro low 30 | How far clocks may differ when a token's times are checked.
sasl.oauthbearer.expected.audience LIST ro high "" | Audiences that a token must be for.
sasl.oauthbearer.expected.issuer STRING ro high null | Issuer that a token must come from.
sasl.oauthbearer.jwks.endpoint.refresh.ms LONG ro low 3600000 | How often the keys of an OAuth server are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms LONG ro low 10000 | Longest pause between attempts to read them.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms LONG ro low 100 | First pause between attempts to read them.
sasl.oauthbearer.jwks.endpoint.url STRING ro medium null | Where the keys of an OAuth server are.
sasl.oauthbearer.jwt.retriever.class CLASS ro medium org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever | Java class that gets tokens.
sasl.oauthbearer.jwt.validator.class CLASS ro medium org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator | Java class that checks tokens.
sasl.oauthbearer.scope STRING ro medium null | Scope that a token is asked for.
sasl.oauthbearer.scope.claim.name STRING ro low scope | Name of the claim that holds a token's scope.
sasl.oauthbearer.sub.claim.name STRING ro low sub | Name of the claim that holds a token's subject.
sasl.oauthbearer.token.endpoint.url STRING ro medium null | Where an OAuth server gives tokens.
sasl.server.callback.handler.class CLASS ro medium null | Java class behind SASL of connections that clients open. | refused unless default
sasl.server.max.receive.size INT ro medium 524288 | Longest SASL message before a client is authenticated.
security.providers STRING ro low null | Java classes that bring security algorithms.
ssl.allow.dn.changes BOOLEAN ro low false | Whether a new keystore may have another distinguished name.
ssl.allow.san.changes BOOLEAN ro low false | Whether a new keystore may have other alternative names.
ssl.cipher.suites LIST per-broker medium "" | TLS cipher suites that may be used; empty for the defaults.
ssl.client.auth STRING per-broker medium none {required,requested,none} | Whether clients must, may or need not show a certificate. | refused unless none,requested
ssl.enabled.protocols LIST per-broker medium TLSv1.2,TLSv1.3 | TLS versions that may be used.
ssl.endpoint.identification.algorithm STRING per-broker low https | How a server's name is compared with its certificate; empty for not at all.
ssl.engine.factory.class CLASS per-broker low null | Java class that makes TLS engines.
ssl.key.password PASSWORD per-broker medium null | Password of the private key.
ssl.keymanager.algorithm STRING per-broker medium SunX509 | Algorithm of Java's key manager.
ssl.keystore.certificate.chain PASSWORD per-broker medium null | Certificate chain in PEM form.
ssl.keystore.key PASSWORD per-broker medium null | Private key in PEM form.
ssl.keystore.location STRING per-broker medium null | File with certificate and private key.
ssl.keystore.password PASSWORD per-broker medium null | Password of that file.
ssl.keystore.type STRING per-broker medium JKS | Form of that file, as JKS, PKCS12 or PEM.
ssl.principal.mapping.rules STRING ro low DEFAULT | Rules that make short names of certificates' distinguished names.
ssl.protocol STRING per-broker medium TLSv1.3 | TLS version of new contexts.
ssl.provider STRING per-broker medium null | Java security provider for TLS.
ssl.secure.random.implementation STRING per-broker low null | Java class of random numbers for TLS.
ssl.trustmanager.algorithm STRING per-broker medium PKIX | Algorithm of Java's trust manager.
ssl.truststore.certificates PASSWORD per-broker medium null | Trusted certificates in PEM form.
ssl.truststore.location STRING per-broker medium null | File with trusted certificates.
ssl.truststore.password PASSWORD per-broker medium null | Password of that file.
ssl.truststore.type STRING per-broker medium JKS | Form of that file, as JKS, PKCS12 or PEM.
super.users STRING ro? low null | Principals whom Kafka's authorizer lets do anything. | refused unless default
"""
