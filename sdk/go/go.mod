module github.com/tidegate/tidegate/sdk/go

go 1.22
