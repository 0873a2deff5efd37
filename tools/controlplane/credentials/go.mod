// Makes the key material of the development cluster; the standard library only.
module duepoint.dev/controlplane/credentials

go 1.26.0
